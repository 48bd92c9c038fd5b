"""The cluster file: who belongs to the cluster, their addresses, and which member this node is.

One file serves all nodes; what differs is `node`, which `--node` or `DELAYLOG_NODE` may set too.
Everything is checked before anything is started, and an error names the key, what is wrong with it
and what it may be.

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
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from delaylog.broker.cluster.config.cluster_config import ClusterConfig, cluster_id_of
from delaylog.broker.cluster.config.fields import (
    name_field,
    parse_address,
    refuse_unknown,
    text_field,
)
from delaylog.broker.cluster.config.member import Member, check_members, parse_member
from delaylog.broker.cluster.config.secret import (
    MAKE_ONE,
    ClusterSecret,
    parse_secrets,
    read_secrets,
)
from delaylog.broker.cluster.peers.tls import PeerTls
from delaylog.broker.host.settings.options import ConfigError
from delaylog.broker.rules.addresses import Address, is_numeric
from delaylog.replication.errors import ClusterError
from delaylog.replication.leading.leader import Acks

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
