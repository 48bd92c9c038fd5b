"""One member of a cluster, as a cluster file or the log describes it.

`make_member` reads a table `[members.N]` of a cluster file, or the contact in a configuration of
the log, which has the same keys. The checks of several members together are here too.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from delaylog.broker.cluster.config.fields import (
    name_field,
    parse_address,
    parse_url,
    refuse_unknown,
    text_field,
)
from delaylog.broker.cluster.fitness.targets import PRIORITY, PRIORITY_MAX
from delaylog.broker.rules.addresses import Address, host_port, is_numeric
from delaylog.replication.configuration import CLUSTER_SIZES, NODE_MAX, Contact
from delaylog.replication.errors import ClusterError

_KEYS: Final = frozenset({"name", "peer", "election_port", "http", "resp", "priority", "zone"})


@dataclass(frozen=True, slots=True)
class Member:
    """A node and its addresses."""

    node: int
    name: str
    peer: Address
    election: Address
    """UDP; the host is that of `peer`."""
    http_url: str
    """Without a trailing slash."""
    resp: Address | None = None
    priority: int = PRIORITY
    """The fit member with the highest priority leads; equal priorities have no preference."""
    zone: str = ""
    """Members of one zone may fail together."""

    @property
    def listen(self) -> Address:
        """Where its process listens by default: at a numeric peer address, and for a name on all
        addresses of the machine (no host), since the name's address may change.
        """
        host, port = self.peer
        return (host if is_numeric(host) else ""), port

    @property
    def contact(self) -> Contact:
        """The member as a configuration in the log describes it: with keys of a cluster file."""
        contact = {
            "name": self.name,
            "peer": host_port(self.peer),
            "election_port": str(self.election[1]),
            "http": self.http_url,
        }
        return contact if self.resp is None else {**contact, "resp": host_port(self.resp)}


def make_member(node: int, contact: Mapping[str, Any]) -> Member:
    """A member from a contact of the log. Raises ClusterError."""
    table = dict(contact)
    if isinstance(table.get("election_port"), str) and table["election_port"].isdecimal():
        table["election_port"] = int(table["election_port"])
    return parse_member(str(node), table)


def parse_member(index: str, table: Any) -> Member:
    """A member from its table in a cluster file. Raises ClusterError."""
    where = f"members.{index}"
    if not re.fullmatch(r"0|[1-9][0-9]{0,4}", index) or int(index) > NODE_MAX:
        raise ClusterError(f"{where}: a member's index is a number from 0 to {NODE_MAX}")
    if not isinstance(table, dict):
        raise ClusterError(f"{where} must be a table with peer and http, not {table!r}")
    where += "."
    refuse_unknown(table, _KEYS, where)
    peer = _peer(table, where)
    election_port = table.get("election_port", peer[1])
    if type(election_port) is not int or not 0 < election_port <= 65_535:
        raise ClusterError(f"{where}election_port must be 1 to 65535, not {election_port!r}")
    hint = 'host and port, such as "10.0.0.1:8711"'
    return Member(
        node=int(index),
        name=name_field(table, "name", where) if "name" in table else f"node-{index}",
        peer=peer,
        election=(peer[0], election_port),
        http_url=parse_url(text_field(table, "http", where, hint), f"{where}http"),
        resp=parse_address(text_field(table, "resp", where, hint), f"{where}resp")
        if "resp" in table
        else None,
        priority=_priority(table, where),
        zone=name_field(table, "zone", where) if "zone" in table else "",
    )


def _priority(table: Mapping[str, Any], where: str) -> int:
    value = table.get("priority", PRIORITY)
    if type(value) is not int or not 0 <= value <= PRIORITY_MAX:
        raise ClusterError(f"{where}priority must be 0 to {PRIORITY_MAX}, not {value!r}")
    return value


def _peer(table: Mapping[str, Any], where: str) -> Address:
    """The peer address. A name is looked up at each attempt to connect."""
    hint = 'host and port, such as "10.0.0.1:8712" or "alpha.example:8712"'
    text = text_field(table, "peer", where, hint)
    host, port = parse_address(text, f"{where}peer")
    address = ipaddress.ip_address(host) if is_numeric(host) else None
    if address and (address.is_unspecified or address.is_multicast or address.is_reserved):
        raise ClusterError(f"{where}peer: the others cannot connect to {text!r}; say {hint}")
    return host, port


# ---------------------------------------------------------------------- several members


def check_members(members: Iterable[Member]) -> None:
    """Check that no two members share a name or an address. Raises ClusterError."""
    members = [*members]
    _refuse_same((f"members.{m.node}.name", m.name) for m in members)
    _refuse_same((f"members.{m.node}.{key}", at) for m in members for key, at in _tcp(m))
    _refuse_same((f"members.{m.node}.election_port", m.election) for m in members)


def _tcp(member: Member) -> list[tuple[str, Address]]:
    """The addresses that the member's process listens on by TCP."""
    found = [
        ("peer", member.peer),
        ("http", parse_address(member.http_url.partition("://")[2], "http")),
    ]
    return found if member.resp is None else [*found, ("resp", member.resp)]


def _refuse_same(named: Iterable[tuple[str, str | Address]]) -> None:
    seen: dict[str | Address, str] = {}
    for key, value in named:
        if value in seen:
            text = value if isinstance(value, str) else host_port(value)
            raise ClusterError(f"{key} and {seen[value]} are both {text!r}; each needs its own")
        seen[value] = key


def check_founding(members: Iterable[Member]) -> None:
    """Check that a cluster may be founded with this number of members. Raises ClusterError."""
    sizes, count = ", ".join(map(str, CLUSTER_SIZES)), len([*members])
    if count not in CLUSTER_SIZES:
        raise ClusterError(
            f"members: a cluster is founded with {sizes} nodes, not {count}; an even number "
            "survives no more failures than one less. If the cluster exists, leave out "
            "--new-cluster"
        )
