"""The cluster file: who belongs to the cluster, where each is found, and which one this node is.

One file serves all nodes; what differs is `node`, which `--node` or `DELAYLOG_NODE` may say too.
Everything is checked before anything is started, and an error names the key, what is wrong with it
and what it may be.

    cluster = "orders"              # the same name on all nodes, and of no other cluster
    secret_file = "cluster.secret"  # 32 random bytes or more, in hex or base64; or
                                    # DELAYLOG_CLUSTER_SECRET
    node = 1                        # which of the members this is
    acks = "quorum"                 # of a send that does not say: leader, quorum or all

    [members.1]
    name = "alpha"                  # for people; "node-1" if left out
    peer = "10.0.0.1:8712"          # TCP between nodes, and by UDP the election
    election_port = 8712            # if the election is to have another one
    http = "10.0.0.1:8711"          # where clients are sent; http:// or https:// may stand before
    resp = "10.0.0.1:8713"          # likewise, may be left out
    priority = 50                   # 0 to 100: the fit member of the highest priority leads
    zone = "a"                      # a rack or a data centre; may be left out, as priority

    [tls]                           # may be left out
    ca = "ca.pem"
    cert = "node.pem"
    key = "node.key"

Files are looked for beside the cluster file.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from delaylog.broker.cluster.fitness.targets import PRIORITY, PRIORITY_MAX
from delaylog.broker.cluster.peers.tls import PeerTls
from delaylog.broker.cluster.secret import (
    MAKE_ONE,
    KeyUse,
    check_private,
    derive_key,
    parse_secret,
    read_secret,
)
from delaylog.replication.configuration import (
    CLUSTER_ID_SIZE,
    CLUSTER_SIZES,
    NODE_MAX,
    Configuration,
    Contact,
)
from delaylog.replication.errors import ClusterError
from delaylog.replication.leading.leader import Acks

SECRET_VARIABLE: Final = "DELAYLOG_CLUSTER_SECRET"
NODE_VARIABLE: Final = "DELAYLOG_NODE"
MEMBERS_MAX: Final = 15
"""Voters and learners together."""
_KEYS: Final = frozenset({"cluster", "secret_file", "node", "acks", "members", "tls"})
_MEMBER_KEYS: Final = frozenset(
    {"name", "peer", "election_port", "http", "resp", "priority", "zone"}
)
_TLS_KEYS: Final = frozenset({"ca", "cert", "key"})
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Address: TypeAlias = tuple[str, int]
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Member:
    """One node and where it is found."""

    node: int
    name: str
    peer: Address
    election: Address
    """UDP; the host is that of `peer`."""
    http_url: str
    """Without a slash behind it."""
    resp: Address | None = None
    priority: int = PRIORITY
    """Among fit members the highest leads; equal ones are equal."""
    zone: str = ""
    """Members of one zone may fail together."""

    @property
    def contact(self) -> Contact:
        """What a configuration in the log says of it: the keys of a cluster file."""
        said = {
            "name": self.name,
            "peer": "{}:{}".format(*self.peer),
            "election_port": str(self.election[1]),
            "http": self.http_url,
        }
        return said if self.resp is None else {**said, "resp": _host_port(self.resp)}


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A checked cluster file, as this node sees it."""

    name: str
    cluster_id: bytes
    node: int
    members: tuple[Member, ...]
    """By ascending index."""
    acks: Acks
    tls: PeerTls | None
    secret: bytes = field(repr=False)

    @property
    def me(self) -> Member:
        """This node."""
        return self.member(self.node)

    @property
    def others(self) -> tuple[Member, ...]:
        """All but this one."""
        return tuple(member for member in self.members if member.node != self.node)

    @property
    def peers(self) -> dict[int, Address]:
        """Where each node is reached by the others."""
        return {member.node: member.peer for member in self.members}

    def member(self, node: int) -> Member:
        """The member of this index."""
        return next(member for member in self.members if member.node == node)

    def name_of(self, node: int) -> str:
        """What people call a node, which need not be a member any more."""
        return next((each.name for each in self.members if each.node == node), f"node-{node}")

    def following(self, configuration: Configuration) -> ClusterConfig:
        """The same with the members that a log has, and this node. Raises ClusterError.

        A log that says nothing of members leaves those of the cluster file.
        """
        if not configuration.version:
            return self
        known = {each.node: each for each in self.members}
        for node, contact in configuration.contacts.items():
            made, mine = make_member(node, contact), known.get(node)
            # The log does not say priorities and zones: each node tells its own.
            known[node] = made if mine is None else _like(made, mine)
        nodes = sorted({*configuration.nodes, self.node} & known.keys())
        return replace(self, members=tuple(known[node] for node in nodes))

    def key(self, use: KeyUse) -> bytes:
        """The key of one use, derived from the secret."""
        return derive_key(self.secret, self.cluster_id, use)


def load_cluster(
    path: str, *, node: str | None = None, environ: Mapping[str, str] = os.environ
) -> ClusterConfig:
    """Read and check a cluster file; `node` = what `--node` says. Raises ClusterError."""
    table = _read(path)
    _refuse_unknown(table, _KEYS, "")
    name = _name(table, "cluster", "")
    members = _members(table.get("members"))
    return ClusterConfig(
        name=name,
        cluster_id=cluster_id_of(name),
        node=_this_node(table, members, node, environ),
        members=members,
        acks=_acks(table.get("acks", Acks.QUORUM.value)),
        tls=_tls(table.get("tls"), Path(path).parent),
        secret=_secret(table, Path(path).parent, environ),
    )


def _like(made: Member, mine: Member) -> Member:
    """A member of the log with the priority and zone that the cluster file gives it."""
    return replace(made, priority=mine.priority, zone=mine.zone)


def make_member(node: int, contact: Mapping[str, Any]) -> Member:
    """A member by the keys of a cluster file. Raises ClusterError."""
    said = dict(contact)
    if isinstance(said.get("election_port"), str) and said["election_port"].isdecimal():
        said["election_port"] = int(said["election_port"])
    return _member(str(node), said)


def check_members(members: Iterable[Member]) -> None:
    """No two of them share a name or an address. Raises ClusterError."""
    members = [*members]
    _refuse_same((f"members.{m.node}.name", m.name) for m in members)
    _refuse_same((f"members.{m.node}.{key}", at) for m in members for key, at in _tcp(m))
    _refuse_same((f"members.{m.node}.election_port", m.election) for m in members)


def check_founding(members: Iterable[Member]) -> None:
    """As many members as a cluster may be founded with. Raises ClusterError."""
    sizes, count = ", ".join(map(str, CLUSTER_SIZES)), len([*members])
    if count not in CLUSTER_SIZES:
        raise ClusterError(
            f"members: a cluster is founded with {sizes} nodes, not {count}; an even number "
            "survives no more failures than one less. If the cluster exists, leave out "
            "--new-cluster"
        )


def cluster_id_of(name: str) -> bytes:
    """The 16 bytes that stand for a cluster's name."""
    return hashlib.sha256(b"delaylog cluster\0" + name.encode()).digest()[:CLUSTER_ID_SIZE]


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ClusterError(f"cannot read the cluster file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ClusterError(f"the cluster file {path} is not TOML: {error}") from None


def _refuse_unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in table:
        if key not in known:
            names = ", ".join(sorted(known))
            raise ClusterError(f"{where}{key} is no key of a cluster file; there are {names}")


def _text(table: Mapping[str, Any], key: str, where: str, hint: str) -> str:
    if key not in table:
        raise ClusterError(f"{where}{key} is missing; {hint}")
    value = table[key]
    if not isinstance(value, str) or not value:
        raise ClusterError(f"{where}{key} must be text in quotes, not {value!r}; {hint}")
    return value


def _name(table: Mapping[str, Any], key: str, where: str) -> str:
    hint = "up to 64 letters, digits, '.', '_' and '-', a letter or digit first"
    value = _text(table, key, where, hint)
    if not _NAME.fullmatch(value):
        raise ClusterError(f"{where}{key} must be {hint}, not {value!r}")
    return value


def _members(table: Any) -> tuple[Member, ...]:
    if not isinstance(table, dict) or not table:
        raise ClusterError("members is missing; write [members.0] and so on, one for each node")
    members = sorted((_member(key, value) for key, value in table.items()), key=_index)
    if len(members) > MEMBERS_MAX:
        raise ClusterError(f"members: a cluster has {MEMBERS_MAX} at most, not {len(members)}")
    check_members(members)
    return tuple(members)


def _index(member: Member) -> int:
    return member.node


def _member(index: str, table: Any) -> Member:
    where = f"members.{index}"
    if not re.fullmatch(r"0|[1-9][0-9]{0,4}", index) or int(index) > NODE_MAX:
        raise ClusterError(f"{where}: a member's index is a number from 0 to {NODE_MAX}")
    if not isinstance(table, dict):
        raise ClusterError(f"{where} must be a table with peer and http, not {table!r}")
    where += "."
    _refuse_unknown(table, _MEMBER_KEYS, where)
    peer = _peer(table, where)
    election_port = table.get("election_port", peer[1])
    if type(election_port) is not int or not 0 < election_port <= 65_535:
        raise ClusterError(f"{where}election_port must be 1 to 65535, not {election_port!r}")
    hint = 'host and port, such as "10.0.0.1:8711"'
    return Member(
        node=int(index),
        name=_name(table, "name", where) if "name" in table else f"node-{index}",
        peer=peer,
        election=(peer[0], election_port),
        http_url=_url(_text(table, "http", where, hint), f"{where}http"),
        resp=_address(_text(table, "resp", where, hint), f"{where}resp")
        if "resp" in table
        else None,
        priority=_priority(table, where),
        zone=_name(table, "zone", where) if "zone" in table else "",
    )


def _priority(table: Mapping[str, Any], where: str) -> int:
    value = table.get("priority", PRIORITY)
    if type(value) is not int or not 0 <= value <= PRIORITY_MAX:
        raise ClusterError(f"{where}priority must be 0 to {PRIORITY_MAX}, not {value!r}")
    return value


def _peer(table: Mapping[str, Any], where: str) -> Address:
    """The election speaks UDP and knows its peers by their numeric addresses."""
    hint = 'a numeric IPv4 address and a port, such as "10.0.0.1:8712"'
    text = _text(table, "peer", where, hint)
    host, port = _address(text, f"{where}peer")
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        raise ClusterError(f"{where}peer must be {hint}, not {text!r}") from None
    if address.is_unspecified or address.is_multicast or address.is_reserved:
        raise ClusterError(f"{where}peer: the others cannot connect to {text!r}; say {hint}")
    return host, port


def _address(text: str, name: str) -> Address:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        good = _is_ipv6(host)
    else:
        good = _HOST.fullmatch(host) is not None
    if not colon or not good or not re.fullmatch(r"[0-9]{1,5}", port):
        raise ClusterError(f"{name} must be HOST:PORT, not {text!r}")
    if not 0 < int(port) <= 65_535:
        raise ClusterError(f"{name}: a port is 1 to 65535, not {port}")
    return host.lower(), int(port)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _url(text: str, name: str) -> str:
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    if scheme not in ("http", "https"):
        raise ClusterError(f"{name} must begin with http:// or https://, or neither: {text!r}")
    host, port = _address(rest.removesuffix("/"), name)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _tcp(member: Member) -> list[tuple[str, Address]]:
    """What one process listens on by TCP."""
    found = [
        ("peer", member.peer),
        ("http", _address(member.http_url.partition("://")[2], "http")),
    ]
    return found if member.resp is None else [*found, ("resp", member.resp)]


def _refuse_same(named: Iterable[tuple[str, object]]) -> None:
    seen: dict[object, str] = {}
    for key, value in named:
        if value in seen:
            text = value if isinstance(value, str) else ":".join(map(str, _parts(value)))
            raise ClusterError(f"{key} and {seen[value]} are both {text!r}; each needs its own")
        seen[value] = key


def _host_port(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parts(value: object) -> tuple[object, ...]:
    assert isinstance(value, tuple)
    return value


def _this_node(
    table: Mapping[str, Any],
    members: tuple[Member, ...],
    flag: str | None,
    environ: Mapping[str, str],
) -> int:
    """`--node` wins over the variable, that over the file."""
    where, value = "node", table.get("node")
    if NODE_VARIABLE in environ:
        where, value = NODE_VARIABLE, environ[NODE_VARIABLE]
    if flag is not None:
        where, value = "--node", flag
    there = ", ".join(str(member.node) for member in members)
    if value is None:
        text = f"which node is this? Say --node, {NODE_VARIABLE} or `node = ...` in the file"
        raise ClusterError(f"{text}; the members are {there}")
    for member in members:
        if (type(value) is int and value == member.node) or value == str(member.node):
            return member.node
    raise ClusterError(f"{where} is {value!r}, which is none of the members: {there}")


def _acks(value: Any) -> Acks:
    known = [acks.value for acks in Acks]
    if value not in known:
        raise ClusterError(f"acks must be one of {', '.join(known)}, not {value!r}")
    return Acks(value)


def _tls(table: Any, folder: Path) -> PeerTls | None:
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ClusterError(f"tls must be a table with ca, cert and key, not {table!r}")
    _refuse_unknown(table, _TLS_KEYS, "tls.")
    paths = {}
    for key in sorted(_TLS_KEYS):
        path = folder / _text(table, key, "tls.", "a file in PEM; all of ca, cert and key")
        if not path.is_file():
            raise ClusterError(f"tls.{key}: there is no file {path}")
        paths[key] = str(path)
    check_private(Path(paths["key"]), "tls.key")
    tls = PeerTls(**paths)
    tls.contexts()
    return tls


def _secret(table: Mapping[str, Any], folder: Path, environ: Mapping[str, str]) -> bytes:
    """The variable wins over the file."""
    if SECRET_VARIABLE in environ:
        return parse_secret(environ[SECRET_VARIABLE], SECRET_VARIABLE)
    hint = f"the path of a file, or set {SECRET_VARIABLE}; {MAKE_ONE}"
    return read_secret(folder / _text(table, "secret_file", "", hint))
