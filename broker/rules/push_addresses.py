"""Where a push may go: the form of a target's URL, and the addresses that it may connect to.

An address must be a unicast address of the public internet. It is judged after name resolution,
when its socket is about to be made, so literals, odd spellings and rebinding names end here as
well. An operator's allow-list of networks overrides the table below. An IPv6 address that embeds an
IPv4 address is refused if either of them is: a translator in the network may forward to the
embedded one. `is_global` of the standard library is not used, because it accepts several ranges of
this table.

yarl parses the URL, as aiohttp does when it connects, so that both see the same host. A host of
digits and dots must be an IPv4 address in its usual form, since aiohttp connects to no other. Hosts
that a resolver takes for an address, such as `0x7f.1`, are legal URLs: that address is judged.

Sources: the special-purpose registries of IANA for IPv4 and IPv6 (RFC 6890), the IPv6 address space
registry (only 2000::/3 is global unicast), and the RFCs that the rows name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from yarl import URL

from delaylog.broker.rules.addresses import is_numeric
from delaylog.contract.calls.targets import UNAUTHENTICATED, URL_BYTES_MAX

# ----------------------------------------------------------------------------------------- URLs

HOST_CHARS_MAX: Final = 253
PORTS: Final = frozenset((80, 443))
"""Ports that a push may connect to, unless the configuration names others."""
SCHEMES: Final = ("https", "http")
_HOST: Final = re.compile(
    r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?"
)


def check_url(text: str) -> str:
    """The URL in its stored form, its host in ASCII (IDNA). Raises ValueError."""
    if len(text.encode()) > URL_BYTES_MAX:
        raise ValueError(f"a URL has at most {URL_BYTES_MAX} bytes")
    if not text.isprintable() or " " in text or "\\" in text:
        # Parsers drop or reinterpret these, each in its own way.
        raise ValueError("a URL has no spaces, control characters or backslashes")
    scheme, found, rest = text.partition("://")
    if not found or scheme.lower() not in SCHEMES:
        raise ValueError("a URL begins with https:// or http://")
    if "#" in text:
        raise ValueError("a URL has no fragment: remove '#' and what follows it")
    try:
        url = URL(text)
        # The port is parsed on access.
        host, _ = url.raw_host or "", url.port
    except ValueError as error:
        raise ValueError(f"this is not a URL: {error}") from None
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    if "@" in authority or "@" in url.raw_authority:
        raise ValueError(f"a URL has no user name and no password: {UNAUTHENTICATED}")
    if not _is_host(host, bracketed="[" in authority):
        raise ValueError(f"{host[:HOST_CHARS_MAX]!r} is not a host name or an IP address")
    return str(url)


def _is_host(host: str, *, bracketed: bool) -> bool:
    try:
        if bracketed:
            # A scope such as %eth0 names an interface of this machine.
            return "%" not in host and bool(IPv6Address(host))
        if re.fullmatch(r"[0-9.]+", host):
            return bool(IPv4Address(host))
    except ValueError:
        return False
    return len(host) <= HOST_CHARS_MAX and _HOST.fullmatch(host) is not None


# ------------------------------------------------------------------------------------ addresses

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

REFUSED_IPV4: Final = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "unspecified: this network (RFC 791)"),
        ("10.0.0.0/8", "private (RFC 1918)"),
        ("100.64.0.0/10", "shared by a carrier's NAT (RFC 6598)"),
        ("127.0.0.0/8", "loopback (RFC 1122)"),
        ("168.63.129.16/32", "a platform service of Azure's virtual machines"),
        ("169.254.0.0/16", "link-local (RFC 3927)"),
        ("172.16.0.0/12", "private (RFC 1918)"),
        ("192.0.0.0/24", "for IETF protocols (RFC 6890)"),
        ("192.0.2.0/24", "documentation (RFC 5737)"),
        ("192.88.99.0/24", "6to4 relay anycast (RFC 7526)"),
        ("192.168.0.0/16", "private (RFC 1918)"),
        ("198.18.0.0/15", "benchmarks (RFC 2544)"),
        ("198.51.100.0/24", "documentation (RFC 5737)"),
        ("203.0.113.0/24", "documentation (RFC 5737)"),
        ("224.0.0.0/4", "multicast (RFC 5771)"),
        ("240.0.0.0/4", "reserved, or broadcast (RFC 1112)"),
    )
)
REFUSED_IPV6: Final = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified (RFC 4291)"),
        ("::1/128", "loopback (RFC 4291)"),
        ("::/96", "IPv4-compatible (RFC 4291)"),
        ("::ffff:0:0:0/96", "IPv4-translated (RFC 2765)"),
        ("64:ff9b::/96", "NAT64 (RFC 6052)"),
        ("64:ff9b:1::/48", "NAT64 of a local network (RFC 8215)"),
        ("2001::/32", "Teredo (RFC 4380)"),
        ("2001::/23", "for IETF protocols (RFC 2928)"),
        ("2001:db8::/32", "documentation (RFC 3849)"),
        ("2002::/16", "6to4 (RFC 3056)"),
        ("3fff::/20", "documentation (RFC 9637)"),
        ("fc00::/7", "unique local (RFC 4193)"),
        ("fe80::/10", "link-local (RFC 4291)"),
        ("fec0::/10", "site-local (RFC 3879)"),
        ("ff00::/8", "multicast (RFC 4291)"),
    )
)
GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_ISATAP: Final = 0x5EFE
"""Bits 64 to 95 of an ISATAP address (RFC 5214), but for the universal and the group bit."""


def _low(address: int) -> int:
    return address & 0xFFFF_FFFF


def _behind_48(address: int) -> int:
    """The IPv4 address behind a prefix of 48 bits (RFC 6052 2.2)."""
    return (address >> 64 & 0xFFFF) << 16 | address >> 40 & 0xFFFF


def _local_nat64(address: int) -> int:
    """The address of the form with 48 bits, or of that with 96 if there is none in the former."""
    return _behind_48(address) or _low(address)


def _local_nat64_low(address: int) -> int:
    return _low(address) or _behind_48(address)


_EMBEDDED: Final[tuple[tuple[IPv6Network, tuple[Callable[[int], int], ...]], ...]] = (
    (IPv6Network("::/96"), (_low,)),
    (IPv6Network("::ffff:0:0:0/96"), (_low,)),
    (IPv6Network("64:ff9b::/96"), (_low,)),
    (IPv6Network("64:ff9b:1::/48"), (_local_nat64_low, _local_nat64)),
    (IPv6Network("2002::/16"), (lambda address: _low(address >> 80),)),
    # A Teredo address has its server's address, and its client's with all bits inverted.
    (
        IPv6Network("2001::/32"),
        (lambda address: _low(address >> 64), lambda address: _low(address) ^ 0xFFFF_FFFF),
    ),
)


def embedded(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address embeds; a mapped one is not among them."""
    number = int(address)
    if number <= 1:
        # `::` and `::1` are no IPv4-compatible addresses.
        return []
    found = [read(number) for network, reads in _EMBEDDED if address in network for read in reads]
    if _low(number >> 32) & 0xFCFF_FFFF == _ISATAP:
        found.append(_low(number))
    return [IPv4Address(each) for each in dict.fromkeys(found)]


_OPTION: Final = "--push-allow of the broker permits networks"


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks of an allow-list. Raises ValueError that names the wrong one."""
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ip_network(text.strip()))
        except ValueError as error:
            raise ValueError(f"{text!r} is no network, as 10.1.0.0/16 is: {error}") from None
    return tuple(found)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """What a push may reach."""

    allowed: tuple[Network, ...] = ()
    """Networks that are permitted although the table refuses them."""
    ports: frozenset[int] = PORTS
    """Ports that a push may connect to."""

    def refusal(self, host: str, port: int) -> str | None:
        """Why a push must not connect to an address; None if it may. The reason names the option of
        the broker that would permit it. It does not have the address: who sets a target must not
        learn what internal names resolve to.

        `host` is an address as a resolver returns it, also one with a scope (`fe80::1%eth0`).
        """
        faults = (self.port_fault(port), self._address_fault(host))
        return "; ".join(filter(None, faults)) or None

    def port_fault(self, port: int) -> str | None:
        """Why a push must not connect to a port of any address; None if it may."""
        if port in self.ports:
            return None
        names = ", ".join(map(str, sorted(self.ports)))
        return f"port {port} is not permitted: --push-ports of the broker permits {names}"

    def _address_fault(self, host: str) -> str | None:
        try:
            address: Address = ip_address(host.partition("%")[0])
        except ValueError:
            return f"{host!r} is not an IP address"
        for each in _meant(address):
            reason = self._refusal(each)
            if reason is not None:
                what = "address is" if each == address else "address embeds one that is"
                return f"the {what} not permitted: {reason}; {_OPTION}"
        return None

    def _refusal(self, address: Address) -> str | None:
        if any(address in network for network in self.allowed):
            return None
        table = REFUSED_IPV4 if isinstance(address, IPv4Address) else REFUSED_IPV6
        for network, reason in table:
            if address in network:
                return reason
        if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
            return "not global unicast (RFC 4291)"
        return None


def refused_literal(url: str, rules: AddressRules) -> str | None:
    """Why no push would reach what a checked URL names; None: it may. Of a name only the port is
    judged, the address when it is resolved; `localhost` is this machine everywhere (RFC 6761).
    """
    parsed = URL(url)
    host, port = parsed.host or "", parsed.port or 0
    if is_numeric(host):
        return rules.refusal(host, port)
    return rules.refusal("127.0.0.1", port) if host == "localhost" else rules.port_fault(port)


def _meant(address: Address) -> list[Address]:
    """The addresses that a connection may end at: all of them are judged."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        # The kernel connects to the IPv4 address itself.
        return [address.ipv4_mapped]
    return [address, *embedded(address)]
