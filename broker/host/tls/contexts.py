"""The TLS contexts of a node, from PEM files: for its listeners and its calls to other nodes.

`ServerTls` is for listeners of clients; its files are read again without a restart: `read` builds a
new context, which replaces the current one. A context in use is never changed. OpenSSL can replace
the certificate of a live context, but it only adds client CAs to it, so a removed CA would stay
trusted. The listener gives each connection the context that is in use when the connection is
accepted. Connections with a certificate of a removed client CA are closed. The certificate of a
client says who it is. `ClientTls` says which certificates this node trusts when it calls other
nodes of its cluster over HTTPS. Errors of a file name its setting and the file.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from delaylog.broker.host.config import TlsConfig
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system.private_files import read_file
from delaylog.broker.host.tls import certificates
from delaylog.broker.host.tls.certificates import DER, Authorities, Certificate, Fault, Hosts
from delaylog.broker.host.tls.failed_handshakes import AlertingContext
from delaylog.broker.host.watch.reloader import Use
from delaylog.storage.layout import NEVER_MS

# ------------------------------------------------------------------------------------ PEM files

FILE_BYTES_MAX: Final = 4 << 20
"""Size limit of a PEM file; the CAs of a system take 250 KB."""
_BEGIN: Final = b"-----BEGIN "
_DER_BEGINS: Final = b"\x30\x82"
"""A sequence of more than 255 bytes, as each certificate and each key in DER is one."""
_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


def certificates_in(name: str, path: str) -> list[bytes]:
    """The certificates of a PEM file, in DER. Raises ConfigError."""
    content = read_file(name, path, FILE_BYTES_MAX)
    text = content.decode("ascii", "replace")
    found = _PEM.findall(text)
    if not found:
        raise ConfigError(f"{name} {path} must contain certificates in PEM format{_seen(content)}")
    if len(found) != text.count("-----BEGIN CERTIFICATE-----"):
        raise _damaged(name, path)
    try:
        return [ssl.PEM_cert_to_DER_cert(each) for each in found]
    except ValueError:
        raise _damaged(name, path) from None


def trust(context: ssl.SSLContext, name: str, path: str) -> list[bytes]:
    """Trust the certificates of a PEM file, and return them in DER. Raises ConfigError."""
    certificates = certificates_in(name, path)
    try:
        context.load_verify_locations(cadata=b"".join(certificates))
    except (ssl.SSLError, ValueError):
        raise _damaged(name, path) from None
    return certificates


def load_pair(
    context: ssl.SSLContext, cert_name: str, cert: str, key_name: str, key: str | None
) -> None:
    """Load a certificate and its key. `key` None = in the certificate's file. Raises ConfigError.

    The names are those of the settings.
    """
    content = read_file(cert_name, cert, FILE_BYTES_MAX)
    if key is None:
        if b"-----BEGIN CERTIFICATE-----" in content and b"PRIVATE KEY-----" not in content:
            raise ConfigError(
                f"{cert_name} {cert} contains no private key: give its file as {key_name}"
            )
        key_name, key = cert_name, cert
    of_key = read_file(key_name, key, FILE_BYTES_MAX, private=True)

    def ask() -> str:
        raise ConfigError(f"{key_name} {key}: the key is encrypted; write it without a passphrase")

    try:
        context.load_cert_chain(cert, key, ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the key of {key_name} {key} belongs to another certificate"
        elif error.reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
            why = (
                "its key or its signature, or one of its issuers', is too weak: use an EC key on "
                "P-256 or RSA with 2048 bits, and SHA-256"
            )
        else:
            why = (
                f"it must contain a certificate{_seen(content)}, and {key} a private "
                f"key{_seen(of_key)}, both in PEM format"
            )
        raise ConfigError(f"{cert_name} {cert} cannot be used: {why}") from None
    except OSError as error:
        # The file was removed since it was opened.
        raise ConfigError(f"cannot read {cert_name} {cert}: {error.strerror}") from None


def _seen(content: bytes) -> str:
    """What a file holds instead of PEM, for an error; empty if that is not known."""
    if not content.strip():
        return " (it is empty)"
    if content.startswith(_DER_BEGINS):
        return " (it is in DER: convert it with `openssl x509` or `openssl pkey -inform der`)"
    last = content.rpartition(_BEGIN)
    return " (it ends too early)" if last[1] and b"-----END " not in last[2] else ""


def _damaged(name: str, path: str) -> ConfigError:
    return ConfigError(f"{name} {path}: a certificate in it is damaged")


# ------------------------------------------------------------------------------------ listeners

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


# ------------------------------------------------------------------------------ who a client is

_KINDS: Final = (("URI", "uri"), ("DNS", "dns"), ("email", "email"))
"""Kinds of alternative names as `ssl` names them, and the prefixes of identities."""


class ClientCertificate(NamedTuple):
    """What a verified client certificate proves."""

    identities: tuple[str, ...] = ()
    """Its names: `uri:…`, `dns:…`, `email:…`, then `cn:…`."""
    expires_ms: int = NEVER_MS


_NONE: Final = ClientCertificate()


def client_certificate(transport: asyncio.BaseTransport) -> ClientCertificate:
    """The verified certificate of a client.

    It has no identities without a certificate, without TLS, and if the certificate's CA is not
    trusted any more.
    """
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return _NONE
    context = transport.get_extra_info("ssl_object").context
    if isinstance(context, ServerContext) and not context.owner.trusts(transport):
        return _NONE
    names = certificate.get("subjectAltName", ())
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    identities = (
        *(f"{to}:{name}" for kind, to in _KINDS for given, name in names if given == kind),
        *(f"cn:{value}" for key, value in subject if key == "commonName"),
    )
    return ClientCertificate(identities, _time_ms(certificate["notAfter"]))


@lru_cache(maxsize=1_024)
def _time_ms(text: str) -> int:
    """A time as `ssl` writes it. Cached, because it is asked for each call of a connection."""
    return ssl.cert_time_to_seconds(text) * 1_000


# ------------------------------------------------------------------------- calls to other nodes

_CA: Final = "tls-ca"


class ClientTls:
    """The context for calls to other nodes, from the CAs of `tls-ca`."""

    def __init__(self, path: str, now_s: Callable[[], float] = REAL.wall_s) -> None:
        """Read the file. `now_s` = seconds since the epoch. Raises ConfigError, also if all CAs
        in it have expired.
        """
        self._path = path
        self._now_s = now_s
        self.context, self._cas = self._load()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is read from."""
        return (self._path,)

    def read(self) -> Use:
        """Read the file again, on any thread; returns the function that puts it into use."""
        context, cas = self._load()

        async def use() -> None:
            self.context, self._cas = context, cas

        return use

    def roots(self) -> list[bytes]:
        """The CAs, in DER."""
        return [*self._cas.ders]

    def faults(self) -> list[Fault]:
        """What is wrong with the CAs in use."""
        return self._faults(self._cas)

    def ends(self) -> dict[str, float]:
        """When the next of the CAs in use ends, in seconds since the epoch, by source."""
        return certificates.end_of_authorities("http_ca", self._cas, self._now_s())

    def _faults(self, cas: Authorities) -> list[Fault]:
        return [*certificates.authority_faults(_CA, cas, self._now_s())]

    def _load(self) -> tuple[ssl.SSLContext, Authorities]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        cas = certificates.authorities(trust(context, _CA, self._path))
        certificates.refuse(self._faults(cas))
        return context, cas
