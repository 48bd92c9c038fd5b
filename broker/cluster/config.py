"""The cluster's configuration: members, addresses, secret, TLS; read from the cluster file.

It imports replication; of the cluster only the table of priorities and `peers`. Everything is
checked when it is read, and a bad value raises ClusterError that names its key, what is wrong with
it and what it may be. `ClusterConfig` is the configuration as one node sees it. At first it is the
checked cluster file. Once the log has a configuration, `following` replaces the members by those of
the log. `make_member` reads a table `[members.N]` of a cluster file, or the contact in a
configuration of the log, which has the same keys.

One cluster file serves all nodes; what differs is `node`, which `--node` or `DELAYLOG_NODE` may set
too.

    cluster = "orders"              # the same name on all nodes, and of no other cluster
    secret_file = "cluster.secret"  # 32 random bytes or more, in hex or base64; or
                                    # DELAYLOG_CLUSTER_SECRET; a second line is accepted too
    node = 1                        # which of the members this is
    acks = "quorum"                 # for a send without `acks`: leader, quorum or all
    listen = "0.0.0.0:8712"         # where this node listens for others; its `peer` if left out

    [members.1]
    name = "alpha"                  # for people; "node-1" if left out
    peer = "10.0.0.1:8712"          # TCP between nodes; a name is looked up at each attempt
    election_port = 8712            # UDP, if raftos is to have another one
    http = "10.0.0.1:8711"          # where clients are sent; http:// or https:// may precede it
    resp = "10.0.0.1:8713"          # likewise, may be left out
    priority = 50                   # 0 to 100: the fit member of the highest priority leads
    zone = "a"                      # a rack or a data centre; may be left out, as priority

    [tls]                           # may be left out
    ca = "nodes-ca.pem"
    cert = "node.pem"
    key = "node.key"

Paths are relative to the folder of the cluster file.

A file of the secret may have two secrets, one in each line, while the nodes of a cluster exchange
it one after the other: the first is used, and both are accepted. The file is read again without a
restart. The secret itself is never used as a key. HKDF (RFC 5869) with HMAC-SHA256, salted with the
cluster's id, derives a key for each use, so a leaked key is worth nothing for another use.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from delaylog.broker.cluster.peers.tls import PeerTls
from delaylog.broker.cluster.peers.transport import PeerConfig
from delaylog.broker.cluster.watch.fitness import PRIORITY, PRIORITY_MAX
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system.private_files import read_file
from delaylog.broker.rules.addresses import Address, host_port, is_ipv6, is_numeric
from delaylog.replication.configuration import (
    CLUSTER_ID_SIZE,
    CLUSTER_SIZES,
    NODE_MAX,
    Configuration,
    Contact,
)
from delaylog.replication.errors import ClusterError
from delaylog.replication.leader import Acks

# --------------------------------------------------------------------- fields of a cluster file

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def refuse_unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse a table with a key that is not among the known ones."""
    for key in table:
        if key not in known:
            names = ", ".join(sorted(known))
            raise ClusterError(f"{where}{key} is not a key of a cluster file; there are {names}")


def text_field(table: Mapping[str, Any], key: str, where: str, hint: str) -> str:
    """A required, non-empty text; `hint` says what it may be."""
    if key not in table:
        raise ClusterError(f"{where}{key} is missing; {hint}")
    value = table[key]
    if not isinstance(value, str) or not value:
        raise ClusterError(f"{where}{key} must be text in quotes, not {value!r}; {hint}")
    return value


def name_field(table: Mapping[str, Any], key: str, where: str) -> str:
    """A required name."""
    hint = "up to 64 letters, digits, '.', '_' and '-', a letter or digit first"
    value = text_field(table, key, where, hint)
    if not _NAME.fullmatch(value):
        raise ClusterError(f"{where}{key} must be {hint}, not {value!r}")
    return value


def parse_address(text: str, name: str) -> Address:
    """The host, in its usual spelling, and the port of HOST:PORT; `name` = the name of the key."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        good = is_ipv6(host)
    else:
        good = _HOST.fullmatch(host) is not None and not _is_bad_ipv4(host)
    if not colon or not good or not re.fullmatch(r"[0-9]{1,5}", port):
        raise ClusterError(f"{name} must be HOST:PORT, not {text!r}")
    if not 0 < int(port) <= 65_535:
        raise ClusterError(f"{name}: a port is 1 to 65535, not {port}")
    # An IPv6 address has several spellings; two of them are the same address.
    return str(ipaddress.ip_address(host)) if is_numeric(host) else host.lower(), int(port)


def _is_bad_ipv4(host: str) -> bool:
    """Whether a host looks like an IPv4 address and is none, such as 10.0.0.256."""
    return host.rpartition(".")[2].isdecimal() and not is_numeric(host)


def parse_url(text: str, name: str) -> str:
    """A URL of scheme, host and port; http:// is added to an address without a scheme."""
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    if scheme not in ("http", "https"):
        raise ClusterError(f"{name} must begin with http:// or https://, or neither: {text!r}")
    return f"{scheme}://{host_port(parse_address(rest.removesuffix('/'), name))}"


# ----------------------------------------------------------------------------------- the secret

SECRET_BYTES_MIN: Final = 32
SECRET_FILE_BYTES_MAX: Final = 4096
MAKE_ONE: Final = "make one with: (umask 077; openssl rand -hex 32 > cluster.secret)"
SECRETS_MAX: Final = 2
_HEX: Final = re.compile(r"([0-9A-Fa-f]{2})+")
_WRAPPED: Final = (64, 76)
"""The lengths of lines at which programs wrap base64."""
_DISTINCT_MIN: Final = 10
"""32 random bytes have fewer distinct values than this with a probability of 10^-25."""
_SAMPLES: Final = (b"raftos sample secret key", b"raftos sample salt")
"""Published by raftos as its defaults: anybody could forge a datagram."""


class KeyUse(Enum):
    """What a derived key is for."""

    PEERS = b"delaylog peer connections"
    ELECTION = b"delaylog election"


def derive_key(secret: bytes, cluster_id: bytes, use: KeyUse) -> bytes:
    """The 32-byte key for this use in this cluster."""
    extracted = hmac.digest(cluster_id, secret, "sha256")
    return hmac.digest(extracted, use.value + b"\x01", "sha256")


@dataclass(slots=True)
class ClusterSecret:
    """The secrets of a cluster at present."""

    values: tuple[bytes, ...] = field(repr=False)
    """The first is used, all are accepted."""
    path: Path | None = None
    """Their file; None for the variable, which is not read again."""

    def __str__(self) -> str:
        """The fingerprints of the secrets, of which nobody can guess a secret of random bytes."""
        prints = [
            hmac.digest(each, b"delaylog fingerprint", "sha256")[:4].hex() for each in self.values
        ]
        return f"{prints[0]} is used" + "".join(f", {each} is accepted too" for each in prints[1:])

    @property
    def files(self) -> tuple[str, ...]:
        """The files to watch."""
        return () if self.path is None else (str(self.path),)

    def look(self) -> tuple[bytes, ...]:
        """What the file has now. Raises ClusterError."""
        return self.values if self.path is None else read_secrets(self.path)


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """The secrets in a file that nobody else can read. Raises ClusterError."""
    try:
        text = read_file("secret_file", path, SECRET_FILE_BYTES_MAX, private=True)
    except ConfigError as error:
        raise ClusterError(str(error)) from None
    return parse_secrets(text.decode("utf-8", "replace"), f"secret_file {path}")


def parse_secrets(text: str, where: str) -> tuple[bytes, ...]:
    """The secrets in hex or base64: one, which may be wrapped, or one in each of two lines.

    Raises ClusterError, which never quotes the text.
    """
    lines = text.split()
    if len(lines) < 2:
        return (parse_secret(text, where),)
    whole = {line for line in lines if len(_decoded(line) or b"") >= SECRET_BYTES_MIN}
    if not whole.issuperset(lines):
        if any(map(_HEX.fullmatch, whole)):
            # Joined, the lines would be another secret than that of all other nodes.
            raise ClusterError(
                f"{where}: one line is a secret, and another one is too short for one: it needs "
                f"{SECRET_BYTES_MIN} bytes"
            )
        return (parse_secret(text, where),)
    if len(lines) > SECRETS_MAX:
        raise ClusterError(f"{where}: {len(lines)} secrets; it may have {SECRETS_MAX}, one a line")
    if len(lines[0]) in _WRAPPED and not _HEX.fullmatch(lines[0]):
        raise ClusterError(
            f"{where}: two lines of base64 may be two secrets, or one that is wrapped: write one "
            "secret in one line, and the new one of an exchange in hex"
        )
    return tuple(parse_secret(line, where) for line in lines)


def parse_secret(text: str, where: str) -> bytes:
    """The bytes of a secret in hex or base64. Raises ClusterError, which never quotes the text."""
    text = "".join(text.split())
    if not text:
        raise ClusterError(f"{where}: the secret is empty; {MAKE_ONE}")
    secret = _decoded(text)
    for sample in _SAMPLES:
        if sample in (secret or b"") or sample.replace(b" ", b"") in text.encode():
            raise ClusterError(f"{where}: this is the published sample of raftos; {MAKE_ONE}")
    if secret is None:
        raise ClusterError(f"{where}: the secret is neither hex nor base64; {MAKE_ONE}")
    if len(secret) < SECRET_BYTES_MIN:
        raise ClusterError(
            f"{where}: the secret has {len(secret)} bytes, it needs {SECRET_BYTES_MIN}; {MAKE_ONE}"
        )
    if len(set(secret)) < _DISTINCT_MIN:
        raise ClusterError(f"{where}: the secret is not random; {MAKE_ONE}")
    return secret


def _decoded(text: str) -> bytes | None:
    """Decode hex or base64. Hex is tried first, since 64 hex digits are valid base64 as well."""
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    padded = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


# -------------------------------------------------------------------------------------- members

_MEMBER_KEYS: Final = frozenset(
    {"name", "peer", "election_port", "http", "resp", "priority", "zone"}
)


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
    refuse_unknown(table, _MEMBER_KEYS, where)
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
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    # `is_reserved` of IPv6 includes ::1 and the addresses of NAT64.
    reserved = isinstance(address, ipaddress.IPv4Address) and address.is_reserved
    if address and (address.is_unspecified or address.is_multicast or reserved):
        raise ClusterError(f"{where}peer: the others cannot connect to {text!r}; say {hint}")
    return host, port


# ---------------------------------------------------------------------- several members


def check_members(members: Iterable[Member]) -> None:
    """Check that no two members share a name or an address. Raises ClusterError."""
    members = [*members]
    indexes = {str(m.node) for m in members}
    for m in members:
        if m.name in indexes - {str(m.node)}:
            # Calls name a node by either.
            raise ClusterError(
                f"members.{m.node}.name is {m.name!r}, the index of another member; name it "
                "otherwise"
            )
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


# --------------------------------------------------------------------------- what one node sees


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
    secret: ClusterSecret = field(repr=False)
    listen_at: Address | None = None
    """`listen` of the cluster file: where this node listens for others, if not at its `peer`."""

    @property
    def me(self) -> Member:
        """This node."""
        return self.member(self.node)

    @property
    def others(self) -> tuple[Member, ...]:
        """All members but this node."""
        return tuple(member for member in self.members if member.node != self.node)

    @property
    def peers(self) -> dict[int, Address]:
        """The peer address of each node, by index."""
        return {member.node: member.peer for member in self.members}

    def member(self, node: int) -> Member:
        """The member of this index."""
        return next(member for member in self.members if member.node == node)

    def name_of(self, node: int) -> str:
        """The name of a node, which need not be a member any more."""
        return next((each.name for each in self.members if each.node == node), f"node-{node}")

    def describe(self, node: int) -> str:
        """A node for log lines: its index and its name."""
        return f"node {node} ({self.name_of(node)})"

    def following(self, configuration: Configuration) -> ClusterConfig:
        """A copy with the members of a configuration in the log, and this node.

        Raises ClusterError. Version 0 names no members: those of the cluster file stay.
        """
        if not configuration.version:
            return self
        known = {each.node: each for each in self.members}
        for node, contact in configuration.contacts.items():
            made, mine = make_member(node, contact), known.get(node)
            if mine is not None:
                # The log has no priorities and zones: each node reads its own cluster file.
                made = replace(made, priority=mine.priority, zone=mine.zone)
            known[node] = made
        nodes = sorted({*configuration.nodes, self.node} & known.keys())
        return replace(self, members=tuple(known[node] for node in nodes))

    def peer_config(self) -> PeerConfig:
        """The part of this configuration that connections between nodes need."""
        return PeerConfig(
            self.node,
            self.cluster_id,
            lambda: self.keys(KeyUse.PEERS),
            self.peers,
            self.listen,
            self.tls,
        )

    @property
    def listen(self) -> Address:
        """Where this node listens for other nodes; no host = on all addresses of the machine."""
        return self.listen_at or self.me.listen

    @property
    def listen_election(self) -> Address:
        """Where this node listens for elections by UDP."""
        return self.listen[0], self.me.election[1]

    def keys(self, use: KeyUse) -> tuple[bytes, ...]:
        """The keys for one use, derived from the secrets at present: the first is used, and all are
        accepted.
        """
        return tuple(derive_key(each, self.cluster_id, use) for each in self.secret.values)


def cluster_id_of(name: str) -> bytes:
    """The 16 bytes that identify a cluster by its name."""
    return hashlib.sha256(b"delaylog cluster\0" + name.encode()).digest()[:CLUSTER_ID_SIZE]


# ----------------------------------------------------------------------------- the cluster file

SECRET_VARIABLE: Final = "DELAYLOG_CLUSTER_SECRET"
NODE_VARIABLE: Final = "DELAYLOG_NODE"
MEMBERS_MAX: Final = 15
"""Voters and learners together."""
_KEYS: Final = frozenset({"cluster", "secret_file", "node", "listen", "acks", "members", "tls"})
_TLS_KEYS: Final = ("ca", "cert", "key")


def load_cluster(
    path: str, *, node: str | None = None, environ: Mapping[str, str] = os.environ
) -> ClusterConfig:
    """Read and check a cluster file; `node` = the value of `--node`. An empty variable counts
    as absent. Raises ClusterError.
    """
    table = _read(path)
    refuse_unknown(table, _KEYS, "")
    name = name_field(table, "cluster", "")
    members = _members(table.get("members"))
    return ClusterConfig(
        name=name,
        cluster_id=cluster_id_of(name),
        node=_this_node(table, members, node, environ),
        members=members,
        acks=_acks(table.get("acks", Acks.QUORUM.value)),
        tls=_tls(table.get("tls"), Path(path).parent),
        secret=_secret(table, Path(path).parent, environ),
        listen_at=_listen(table),
    )


def read_members(path: str) -> tuple[str, tuple[Member, ...]]:
    """The cluster's name and the members of a cluster file whose other files may be missing.

    Raises ClusterError.
    """
    table = _read(path)
    refuse_unknown(table, _KEYS, "")
    return name_field(table, "cluster", ""), _members(table.get("members"))


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ClusterError(f"cannot read the cluster file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ClusterError(f"the cluster file {path} is not TOML: {error}") from None


def _members(table: Any) -> tuple[Member, ...]:
    if not isinstance(table, dict) or not table:
        raise ClusterError("members is missing; write [members.0] and so on, one for each node")
    parsed = (parse_member(key, value) for key, value in table.items())
    members = sorted(parsed, key=lambda member: member.node)
    if len(members) > MEMBERS_MAX:
        raise ClusterError(f"members: a cluster has {MEMBERS_MAX} at most, not {len(members)}")
    check_members(members)
    return tuple(members)


def _this_node(
    table: Mapping[str, Any],
    members: tuple[Member, ...],
    flag: str | None,
    environ: Mapping[str, str],
) -> int:
    """The index of this node: `--node` overrides the variable, which overrides the file."""
    where, value = "node", table.get("node")
    if variable := environ.get(NODE_VARIABLE):
        where, value = NODE_VARIABLE, variable
    if flag is not None:
        where, value = "--node", flag
    known = ", ".join(str(member.node) for member in members)
    if value is None:
        text = f"which node is this? Say --node, {NODE_VARIABLE} or `node = ...` in the file"
        raise ClusterError(f"{text}; the members are {known}")
    for member in members:
        if (type(value) is int and value == member.node) or value == str(member.node):
            return member.node
    raise ClusterError(f"{where} is {value!r}, which is none of the members: {known}")


def _listen(table: Mapping[str, Any]) -> Address | None:
    if "listen" not in table:
        return None
    hint = 'a numeric address and a port, such as "0.0.0.0:8712"'
    text = text_field(table, "listen", "", hint)
    host, port = parse_address(text, "listen")
    if not is_numeric(host):
        raise ClusterError(f"listen must be {hint}, not {text!r}")
    return host, port


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
    refuse_unknown(table, _TLS_KEYS, "tls.")
    hint = "a file in PEM; all of ca, cert and key"
    ca, cert, key = (str(folder / text_field(table, each, "tls.", hint)) for each in _TLS_KEYS)
    try:
        return PeerTls(ca, cert, key)
    except ConfigError as error:
        raise ClusterError(str(error)) from None


def _secret(table: Mapping[str, Any], folder: Path, environ: Mapping[str, str]) -> ClusterSecret:
    """The secret; the variable overrides the file."""
    if variable := environ.get(SECRET_VARIABLE):
        return ClusterSecret(parse_secrets(variable, SECRET_VARIABLE))
    hint = f"the path of a file, or set {SECRET_VARIABLE}; {MAKE_ONE}"
    path = folder / text_field(table, "secret_file", "", hint)
    return ClusterSecret(read_secrets(path), path)
