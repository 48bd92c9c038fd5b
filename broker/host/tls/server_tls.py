"""The TLS contexts of the listeners for clients, built from the files of the configuration.

The files are read again without a restart: `read` builds a new context, which replaces the current
one. A context in use is never changed. OpenSSL can replace the certificate of a live context, but
it only adds client CAs to it, so a removed CA would stay trusted. The listener gives each
connection the context that is in use when the connection is accepted. Connections with a
certificate of a removed client CA are closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from delaylog.broker.host.config import TlsConfig
from delaylog.broker.host.process.private_files import private_file_fault
from delaylog.broker.host.settings.options import ConfigError
from delaylog.broker.host.tls.pem import read_file, trust
from delaylog.broker.host.tls.policies import apply_policy
from delaylog.broker.host.watch.reloader import Use

_DER: Final = 2
"""`_ssl.ENCODING_DER`."""


class ServerContext(ssl.SSLContext):
    """A context that knows its `ServerTls`, so that a connection's `ServerTls` can be found."""

    owner: ServerTls


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the files contain."""

    context: ServerContext
    client_cas: frozenset[bytes]
    """The certificates of `tls-client-ca`, in DER."""


class ServerTls:
    """The context in use, and the client CAs that it trusts."""

    def __init__(self, config: TlsConfig) -> None:
        """Read the files. Raises ConfigError."""
        self._config = config
        self._loaded = self._load()
        self.on_exchange: list[Callable[[], Awaitable[None]]] = []
        """Awaited after a new context is in use, if a client CA was removed."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context for connections that are accepted now."""
        return self._loaded.context

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is read from."""
        config = self._config
        return tuple(path for path in (config.cert, config.key, config.client_ca) if path)

    def read(self) -> Use:
        """Read the files again, on any thread. Raises ConfigError.

        Returns the function that puts them into use, for the loop's thread.
        """
        loaded = self._load()

        async def use() -> None:
            removed = self._loaded.client_cas - loaded.client_cas
            self._loaded = loaded
            if removed:
                for call in self.on_exchange:
                    await call()

        return use

    def trusts(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the client certificate of a connection, if it has one, is still trusted.

        The handshake has verified the certificate, perhaps with client CAs that were replaced
        since. So the CA at the end of the verified chain must be among the current ones.
        """
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is None or ssl_object.context is self.context:
            return True
        if not transport.get_extra_info("peercert"):
            return True
        return _verifying_ca(ssl_object) in self._loaded.client_cas

    # ------------------------------------------------------------------ reading

    def _load(self) -> _Loaded:
        config = self._config
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.owner = self
        apply_policy(context, config.policy)
        _load_pair(context, config)
        if config.client_ca is None:
            return _Loaded(context, frozenset())
        client_cas = trust(context, "tls-client-ca", config.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        # A resumed session is not verified again, and each resumption extends it: a client could
        # stay connected after its certificate has expired.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        return _Loaded(context, frozenset(client_cas))


def _load_pair(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Load the certificate and its key. Raises ConfigError."""
    key_name, key = "tls-key", config.key
    content = read_file("tls-cert", config.cert)
    if key is None:
        key_name, key = "tls-cert", config.cert
        if b"-----BEGIN CERTIFICATE-----" in content and b"PRIVATE KEY-----" not in content:
            raise ConfigError(f"tls-cert {key} contains no private key: give its file as tls-key")
    fault = private_file_fault(key, key_name)
    if fault is not None:
        raise ConfigError(fault)
    read_file(key_name, key)

    def ask() -> str:
        raise ConfigError(f"{key_name} {key}: the key is encrypted; write it without a passphrase")

    try:
        context.load_cert_chain(config.cert, key, ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the key of {key_name} {key} belongs to another certificate"
        elif error.reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
            why = "its key or its signature is too weak; `delaylog doctor tls` says more"
        else:
            why = f"it must contain a certificate, and {key} a private key, both in PEM format"
        raise ConfigError(f"tls-cert {config.cert} cannot be used: {why}") from None
    except OSError as error:
        # The file was removed since it was opened.
        raise ConfigError(f"cannot read tls-cert {config.cert}: {error.strerror}") from None


def _verifying_ca(ssl_object: ssl.SSLObject) -> bytes | None:
    """The CA at the end of the chain of a client's certificate, in DER.

    None for a resumed session, which has no chain and was verified by its context only. From Python
    3.13 on `ssl` has a public function for the chain.
    """
    chain = cast("Any", ssl_object)._sslobj.get_verified_chain()
    return chain[-1].public_bytes(_DER) if chain else None
