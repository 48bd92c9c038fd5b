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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from delaylog.broker.host.config import TlsConfig
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.tls import certificates
from delaylog.broker.host.tls.alerts import AlertingContext
from delaylog.broker.host.tls.certificates import (
    DER,
    Authorities,
    Certificate,
    Fault,
    Hosts,
)
from delaylog.broker.host.tls.pem import load_pair, trust
from delaylog.broker.host.watch.reloader import Use

# The minimum version of TLS and the ciphers, chosen by one setting, `tls-policy`.

INTERMEDIATE: Final = "intermediate"
MODERN: Final = "modern"
POLICIES: Final = {
    INTERMEDIATE: ssl.TLSVersion.TLSv1_2,
    MODERN: ssl.TLSVersion.TLSv1_3,
}
"""The minimum version of each policy."""
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2: forward secrecy and authenticated encryption. Those of TLS 1.3 all have both.
"""


def apply_policy(context: ssl.SSLContext, policy: str) -> None:
    """Set the minimum version and the ciphers of a context."""
    context.minimum_version = POLICIES[policy]
    context.set_ciphers(_CIPHERS)
    # OpenSSL 1.1 lets a client of TLS 1.2 repeat the costly handshake as often as it likes.
    context.options |= ssl.OP_NO_RENEGOTIATION


_CERT: Final = "tls-cert"
_CLIENT_CA: Final = "tls-client-ca"


class ServerContext(AlertingContext):
    """A context that knows its `ServerTls`, so that a connection's `ServerTls` can be found."""

    owner: ServerTls


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the files contain."""

    context: ServerContext
    chain: tuple[Certificate, ...]
    """The broker's certificate, then those of its issuers."""
    client_cas: Authorities | None = None
    """The certificates of `tls-client-ca`; None = it is not set."""

    @property
    def trusted(self) -> frozenset[bytes]:
        """The client CAs in DER."""
        return frozenset() if self.client_cas is None else self.client_cas.ders


class ServerTls:
    """The context in use, and the client CAs that it trusts."""

    def __init__(self, config: TlsConfig, now_s: Callable[[], float] = REAL.wall_s) -> None:
        """Read the files. `now_s` = seconds since the epoch. Raises ConfigError, also for
        certificates that have expired or are not valid yet.
        """
        self._config = config
        self._now_s = now_s
        self.hosts = Hosts()
        """What others call this node; set before `faults` is asked."""
        self.roots: Callable[[], Sequence[bytes]] = lambda: ()
        """The CAs of `tls-ca` in DER, which other nodes verify this one with; empty = not set."""
        self._loaded = self._load()
        certificates.refuse(self._faults(self._loaded))
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
        loaded, before = self._load(), self._loaded
        faults = self._faults(loaded)
        if before.chain[0] != loaded.chain[0]:
            faults += certificates.another_host(_CERT, loaded.chain[0], before.chain[0], self.hosts)
        certificates.refuse(faults, self._faults(before))

        async def use() -> None:
            removed = self._loaded.trusted - loaded.trusted
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
        return _verifying_ca(ssl_object) in self._loaded.trusted

    # ------------------------------------------------------------------ checks

    def faults(self) -> list[Fault]:
        """What is wrong with the certificates in use."""
        return self._faults(self._loaded)

    def ends(self) -> dict[str, float]:
        """When the certificates in use end, in seconds since the epoch, by source."""
        loaded = self._loaded
        found: dict[str, float] = {"server": min(each.end_s for each in loaded.chain)}
        if loaded.client_cas is None:
            return found
        now_s = self._now_s()
        return found | certificates.end_of_authorities("client_ca", loaded.client_cas, now_s)

    def _faults(self, loaded: _Loaded) -> list[Fault]:
        now_s, chain = self._now_s(), loaded.chain
        faults = [*certificates.validity(_CERT, chain, now_s)]
        # An expired certificate fails each of the other checks.
        if all(each.begin_s <= now_s < each.end_s for each in chain):
            faults += certificates.use(_CERT, loaded.context, chain)
            if roots := self.roots():
                faults += certificates.issuers(_CERT, loaded.context, chain[0], roots)
        faults += certificates.names(_CERT, chain[0], self.hosts)
        if loaded.client_cas is not None:
            faults += certificates.authority_faults(_CLIENT_CA, loaded.client_cas, now_s)
        return faults

    # ------------------------------------------------------------------ reading

    def _load(self) -> _Loaded:
        config = self._config
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.owner = self
        apply_policy(context, config.policy)
        load_pair(context, _CERT, config.cert, "tls-key", config.key)
        chain = certificates.presented(f"{_CERT} {config.cert}", context)
        if config.client_ca is None:
            return _Loaded(context, chain)
        client_cas = certificates.authorities(trust(context, _CLIENT_CA, config.client_ca))
        context.verify_mode = ssl.CERT_OPTIONAL
        # A resumed session is not verified again, and each resumption extends it: a client could
        # stay connected after its certificate has expired.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        return _Loaded(context, chain, client_cas)


def _verifying_ca(ssl_object: ssl.SSLObject) -> bytes | None:
    """The CA at the end of the chain of a client's certificate, in DER.

    None for a resumed session, which has no chain and was verified by its context only. From Python
    3.13 on `ssl` has a public function for the chain.
    """
    chain = cast("Any", ssl_object)._sslobj.get_verified_chain()
    return chain[-1].public_bytes(DER) if chain else None
