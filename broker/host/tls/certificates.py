"""What certificates say, and what is wrong with them: their ends, names, use and issuers.

Every certificate in use is judged here, at a start, at a reload and once a minute: those of the
listeners and of the calls to other nodes (`contexts`), and of the connections between
nodes (`cluster/peers/tls`). OpenSSL judges them itself, by a handshake in memory with a client that
trusts them, so that no other package is needed and no rule of OpenSSL is repeated here.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Final, NamedTuple, cast

from delaylog.broker.host.settings import ConfigError

DER: Final = 2
"""`_ssl.ENCODING_DER`."""
HOUR_S: Final = 3_600
DAY_S: Final = 24 * HOUR_S
SOON_S: Final = (30 * DAY_S, 7 * DAY_S, DAY_S)
"""Times before its end at which a certificate is worth a warning."""
SOON_SHARE: Final = 4
"""A certificate with a short lifetime is worth a warning only in the last quarter of it."""
_RENEW: Final = "replace the file by a new certificate; the broker reads it without a restart"
_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
}
_TURNS: Final = 3
"""How often each side of a handshake gets what the other has sent: TLS 1.2 needs three turns."""


class Gravity(IntEnum):
    """What a fault means."""

    WARNS = 1
    """The certificate works, for now."""
    FAILS = 2
    """Clients refuse it. A start warns, since clients may be lenient or a proxy may stand before
    the broker. A reload keeps the certificate in use, unless that one has the same fault.
    """
    REFUSED = 3
    """Neither a start nor a reload accepts it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a certificate."""

    check: str
    gravity: Gravity
    text: str
    advice: str
    about: str = ""
    """What the check looked at, where it looks at several things: two certificates may have the
    same fault with different texts."""

    @property
    def severity(self) -> str:
        """`error` if clients or nodes refuse the certificate, else `warning`."""
        return "warning" if self.gravity is Gravity.WARNS else "error"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate as OpenSSL reads it. Times are seconds since the epoch."""

    name: str
    issuer: str
    begin_s: int
    end_s: int
    hosts: tuple[str, ...]
    """DNS names in lower case, and addresses; `*.` begins a wildcard."""
    der: bytes = field(default=b"", repr=False)


class Hosts(NamedTuple):
    """The names and addresses at which others call a node."""

    told: tuple[str, ...] = ()
    """Clients are sent to each of them, so a certificate must name them all."""
    others: tuple[str, ...] = ()
    """A certificate should name one of them: the rest may be those of a proxy."""


# ------------------------------------------------------------------ reading


def presented(setting: str, context: ssl.SSLContext) -> tuple[Certificate, ...]:
    """The certificates that the context of a server sends: its own, then those of issuers.

    Raises ConfigError if no client can agree with it about a handshake.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    try:
        connection = _shake(context, client)
    except ssl.SSLError as error:
        why = error.reason or str(error)
        raise ConfigError(
            f"{setting} cannot be used: no client can agree about a handshake with it ({why}): use "
            "an EC key on P-256, or RSA with 2048 bits"
        ) from None
    chain = cast("Any", connection)._sslobj.get_unverified_chain() or []
    return tuple(_certificate(each.get_info(), each.public_bytes(DER)) for each in chain)


class Authorities(NamedTuple):
    """The certificates of a file of CAs."""

    cas: tuple[Certificate, ...] = ()
    others: tuple[bytes, ...] = ()
    """Those that may not sign others, in DER. One that signs itself verifies itself only."""

    @property
    def ders(self) -> frozenset[bytes]:
        """All of them, in DER."""
        return frozenset((*(each.der for each in self.cas), *self.others))


def authorities(ders: Iterable[bytes]) -> Authorities:
    """The CAs among trusted certificates in DER, and the others."""
    context, all_ders = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), [*dict.fromkeys(ders)]
    context.load_verify_locations(cadata=b"".join(all_ders))
    cas = dict(zip(context.get_ca_certs(binary_form=True), context.get_ca_certs(), strict=True))
    found = [_certificate(cas[der], der) for der in all_ders if der in cas]
    return Authorities(tuple(found), tuple(der for der in all_ders if der not in cas))


def _shake(
    server: ssl.SSLContext, client: ssl.SSLContext, *, mutual: bool = False
) -> ssl.SSLObject:
    """A handshake in memory, until the client has verified the server; returns the client.

    `mutual`: until the server has verified the client, too. Raises SSLError.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_TURNS):
        with suppress(ssl.SSLWantReadError):
            near.do_handshake()
            if not mutual:
                break
        with suppress(ssl.SSLWantReadError):
            far.do_handshake()
    return near


def _certificate(info: Any, der: bytes) -> Certificate:
    hosts = []
    for kind, value in info.get("subjectAltName", ()):
        if kind == "DNS":
            hosts.append(value.lower())
        elif kind == "IP Address":
            with suppress(ValueError):
                hosts.append(str(ipaddress.ip_address(value.strip())))
    return Certificate(
        name=_name(info.get("subject", ())),
        issuer=_name(info.get("issuer", ())),
        begin_s=ssl.cert_time_to_seconds(info["notBefore"]),
        end_s=ssl.cert_time_to_seconds(info["notAfter"]),
        hosts=tuple(hosts),
        der=der,
    )


def _name(parts: Iterable[Iterable[tuple[str, str]]]) -> str:
    pairs = [f"{_SHORT.get(key, key)}={value}" for part in parts for key, value in part]
    return ",".join(reversed(pairs)) or "a certificate without a name"


# ------------------------------------------------------------------ checks


def validity(setting: str, chain: Iterable[Certificate], now_s: float) -> Iterator[Fault]:
    """Certificates that have ended, have not begun, or end soon."""
    for each in chain:
        text, gravity, advice = "", Gravity.REFUSED, _RENEW
        left_s, life_s = each.end_s - now_s, each.end_s - each.begin_s
        near_s = [soon for at in SOON_S if left_s < (soon := min(at, life_s // SOON_SHARE))]
        if left_s <= 0:
            text = f"has expired: it ended on {_time(each.end_s)}"
        elif now_s < each.begin_s:
            text = f"is not valid before {_time(each.begin_s)}; it is {_time(now_s)} here"
            advice = "wait until then, or correct the clock of this machine"
        elif near_s:
            text = f"expires on {_time(each.end_s)}, in less than {_span(min(near_s))}"
            gravity = Gravity.WARNS
        if text:
            yield Fault("validity", gravity, f"{setting}: {each.name} {text}", advice, each.name)


def authority_faults(setting: str, file: Authorities, now_s: float) -> Iterator[Fault]:
    """As `validity`, of CAs: one that has expired is refused only if no other is left."""
    if not file.cas:
        text = f"{setting} holds no CA: no certificate of a CA can be verified"
        advice = "put the certificate of the CA into it that signs the certificates"
        yield Fault("authorities", Gravity.FAILS, text, advice)
    elif file.others:
        text = f"{setting} holds certificates that are no CA: {len(file.others)}"
        advice = "remove them: they verify no other certificate"
        yield Fault("authorities", Gravity.WARNS, text, advice, "no CA")
    faults = [*validity(setting, file.cas, now_s)]
    useless = [each for each in faults if each.gravity is Gravity.REFUSED]
    if useless and len(useless) < len(file.cas):
        first, more = useless[0], len(useless) - 1
        text = first.text + (f"; likewise {more} others" if more else "")
        advice = "remove it from the file, unless the clock of this machine is wrong"
        yield Fault("authorities", Gravity.WARNS, text, advice, "ended")
        faults = [each for each in faults if each not in useless]
    yield from (replace(each, check="authorities") for each in faults)


def end_of_authorities(source: str, file: Authorities, now_s: float) -> dict[str, float]:
    """When the next CA of a file ends, by source; if all have ended, when the last one did."""
    left = [each.end_s for each in file.cas if each.end_s > now_s]
    ended = [max(each.end_s for each in file.cas)] if file.cas else []
    return {source: min(left or ended)} if file.cas else {}


def names(setting: str, leaf: Certificate, hosts: Hosts) -> Iterator[Fault]:
    """Hosts that a server's certificate does not name."""
    if not leaf.hosts:
        text = f"{setting}: {leaf.name} has no subjectAltName: clients ignore its common name"
        advice = "issue it with the names and addresses that clients use"
        yield Fault("names", Gravity.FAILS, text, advice)
        return
    known, advice = ", ".join(leaf.hosts), "issue it with that name, or have clients use another"
    for host in hosts.told:
        if not covers(leaf, host):
            text = f"{setting} does not name {host}; it names {known}"
            yield Fault("names", Gravity.FAILS, text, advice, host)
    if hosts.others and not any(covers(leaf, host) for host in (*hosts.told, *hosts.others)):
        text = f"{setting} names none of {', '.join(hosts.others)}; it names {known}"
        yield Fault("names", Gravity.FAILS, text, advice, "any")


def covers(leaf: Certificate, host: str) -> bool:
    """Whether a certificate names a host; `*.` stands for one label."""
    try:
        return str(ipaddress.ip_address(host)) in leaf.hosts
    except ValueError:
        host = host.lower().rstrip(".")
    _, _, parent = host.partition(".")
    return host in leaf.hosts or f"*.{parent}" in leaf.hosts


def another_host(
    setting: str, leaf: Certificate, running: Certificate, hosts: Hosts
) -> Iterator[Fault]:
    """A certificate that shares no name with the one in use, and names no host of the node."""
    shared = any(covers(leaf, host) for host in (*hosts.told, *hosts.others, *running.hosts))
    shared = shared or any(covers(running, host) for host in leaf.hosts)
    if running.hosts and not shared:
        text = (
            f"{setting} names {', '.join(leaf.hosts) or 'no host'}, and the certificate in use "
            f"names {', '.join(running.hosts)}: it is that of another host"
        )
        advice = "correct the file, or restart the broker to change its names"
        yield Fault("names", Gravity.FAILS, text, advice, "another")


def use(setting: str, context: ssl.SSLContext, chain: Sequence[Certificate]) -> Iterator[Fault]:
    """A certificate that is not for servers, or too weak: trusted as it is, it is refused."""
    why = _refusal(context, [each.der for each in chain], partial=True)
    if why:
        text = f"{setting}: clients refuse {chain[0].name}: {why}"
        advice = "issue it for server authentication, with a strong key, by a CA that may sign"
        yield Fault("use", Gravity.FAILS, text, advice)


def issuers(
    setting: str, context: ssl.SSLContext, leaf: Certificate, roots: Sequence[bytes]
) -> Iterator[Fault]:
    """A chain that does not lead to one of the CAs in `roots`, those of tls-ca."""
    if why := _refusal(context, roots):
        text = f"{setting}: {leaf.name} cannot be verified with tls-ca: {why}"
        advice = (
            "append the certificates of its intermediate CAs to the file, or add its root CA to "
            "tls-ca"
        )
        yield Fault("chain", Gravity.FAILS, text, advice)


def _refusal(server: ssl.SSLContext, roots: Iterable[bytes], *, partial: bool = False) -> str:
    """Why a client that trusts `roots` refuses a server; empty if it does not.

    `partial`: a trusted certificate need not be a root.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    trusted = b"".join(roots)
    if trusted:
        client.load_verify_locations(cadata=trusted)
    if partial:
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return _failure(server, client)


def mutual_refusal(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Why a server and a client, which both have certificates, refuse each other; or empty."""
    return _failure(server, client, mutual=True)


def _failure(server: ssl.SSLContext, client: ssl.SSLContext, *, mutual: bool = False) -> str:
    try:
        _shake(server, client, mutual=mutual)
    except ssl.SSLCertVerificationError as error:
        return str(error.verify_message)
    except ssl.SSLError as error:
        return error.reason or str(error)
    return ""


def refuse(faults: Iterable[Fault], running: Iterable[Fault] | None = None) -> None:
    """Raise ConfigError with the faults that a start, or a reload, does not accept.

    `running` = the faults of the certificate that is in use, at a reload.
    """
    known = {(each.check, each.about) for each in running or ()}
    bad = [
        each
        for each in faults
        if each.gravity is Gravity.REFUSED or (running is not None and _is_new(each, known))
    ]
    if bad:
        raise ConfigError("; ".join(f"{each.text}: {each.advice}" for each in bad))


def _is_new(fault: Fault, known: set[tuple[str, str]]) -> bool:
    return fault.gravity is Gravity.FAILS and (fault.check, fault.about) not in known


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _span(seconds: float) -> str:
    for unit_s, unit in ((DAY_S, "day"), (HOUR_S, "hour"), (60, "minute")):
        if seconds >= unit_s:
            count = -(-int(seconds) // unit_s)
            return f"{count} {unit}s" if count > 1 else f"a{'n' * (unit == 'hour')} {unit}"
    return "a minute"
