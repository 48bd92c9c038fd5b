"""Warnings about addresses that differ between the cluster's configuration, the options of `serve`
and the cluster files of the nodes.

They are only warnings, since a host may be mapped, and a new file may not be on all nodes yet.
Clients and nodes are always given the addresses of the cluster's configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from delaylog.broker.cluster.config import Member
from delaylog.broker.cluster.members.node_status import Status
from delaylog.broker.host.tls.certificates import Hosts
from delaylog.broker.rules.addresses import host_port


def peer_text(member: Member) -> str:
    """The peer address of a member, as a cluster file writes it."""
    return host_port(member.peer)


def announced(me: Member) -> dict[str, Any]:
    """The fields of a status with this node's addresses, from its own cluster file."""
    return {"http": me.http_url, "peer": peer_text(me)}


def announced_elsewhere(member: Member, status: Status) -> dict[str, tuple[str, str]]:
    """By key, the address in a node's own file and the one in the configuration, if they differ."""
    pairs = {
        "http": (status.http, member.http_url),
        "peer": (status.peer, peer_text(member)),
    }
    return {key: (said, here) for key, (said, here) in pairs.items() if said and said != here}


def told_to_clients(me: Member) -> tuple[str, ...]:
    """The hosts of this node that clients are sent to by TLS, which its certificate must name."""
    url = urlsplit(me.http_url)
    if url.scheme != "https" or url.hostname is None:
        return ()
    return (url.hostname,) if me.resp is None else (url.hostname, me.resp[0])


def names_of_node(me: Member) -> Hosts:
    """The name and the hosts of this node, one of which the certificate of `[tls]` may have."""
    http = urlsplit(me.http_url).hostname or ""
    return Hosts(others=(me.name, me.peer[0], http))


def unlike_options(
    me: Member, http_port: int, resp_port: int | None, *, has_tls: bool
) -> Iterator[str]:
    """Warnings about ports that this node listens on and that differ from the configuration.

    Hosts may differ: 0.0.0.0, or a name behind a mapping. `has_tls`: its listeners use TLS.
    """
    named = urlsplit(me.http_url).port
    if has_tls and not me.http_url.startswith("https:"):
        yield (
            f"the cluster sends clients of this node to {me.http_url}, and this node uses TLS: "
            "write its `http` as https://HOST:PORT"
        )
    if not has_tls and me.http_url.startswith("https:"):
        yield (
            f"the cluster sends clients of this node to {me.http_url}, and this node does not use "
            "TLS: unless a proxy does, give --tls-cert"
        )
    if named != http_port:
        yield (
            f"--http listens on port {http_port}, and the cluster sends clients of this node "
            f"to {me.http_url}: unless that port is mapped here, correct one of the two"
        )
    if me.resp is None:
        if resp_port is not None:
            yield (
                f"--resp listens on port {resp_port}, and the cluster has no `resp` for this "
                "node: while it leads, other nodes cannot send Redis clients here"
            )
    elif resp_port is None:
        yield (
            "the cluster sends Redis clients of this node to {}:{}, and it was started "
            "without --resp"
        ).format(*me.resp)
    elif me.resp[1] != resp_port:
        yield (
            "--resp listens on port {}, and the cluster sends Redis clients of this node to "
            "{}:{}: unless that port is mapped here, correct one of the two"
        ).format(resp_port, *me.resp)
