"""The status that every node of a cluster sends to the others twice a second.

A status is a msgpack map with the fields of `Status`. A receiver ignores unknown fields and uses
the default for missing ones, so a field may be added without a new format.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

import msgpack

from delaylog.replication.errors import PeerError
from delaylog.replication.messages import NodeStatus

STATUS_EVERY_MS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of one node. Each field has a default, whose type is the type of the field."""

    wall_us: int = 0
    """The sender's wall clock when it sent this."""
    echo_wall_us: int = 0
    """`wall_us` of the newest status that the sender got from the receiver; 0 = none."""
    echo_heard_us: int = 0
    """The sender's wall clock when it got that status."""
    http: str = ""
    """The sender's HTTP address for clients, in its own cluster file."""
    peer: str = ""
    """Its peer address, HOST:PORT, likewise."""
    release: str = ""
    """The delaylog release of the sender."""
    full: bool = False
    """The sender refuses sends for lack of space."""
    free_bytes: int = 0
    """Bytes free for messages on its disk."""
    unfit: str = ""
    """Why it should not lead, by its own judgement (`watch/fitness.py`); empty = it is fit."""
    sync_ms: int = 0
    """Median time of its recent syncs of the log; 0 = none."""
    sync_max_ms: int = 0
    unapplied_bytes: int = 0
    """Committed log that it has not applied."""
    priority: int = 50
    zone: str = ""
    met: dict[int, int] = field(default_factory=dict)
    """The newest incarnation of each node's folder that the sender remembers."""
    elections: str = ""
    """What the sender elects by: "raftos" or "peers"."""
    removed: bool = False
    """The receiver was removed from the cluster; the sender closes the connection."""
    version: int = 0
    """Version of the configuration that removed it."""
    used: dict[str, int] = field(default_factory=dict)
    """When principals last called the sender, as far as its log does not have it. Sent seldom."""


_TYPES: Final = {name: type(value) for name, value in asdict(Status()).items()}


def encode_status(status: Status) -> NodeStatus:
    """The message that carries a status."""
    return NodeStatus(msgpack.packb(asdict(status)))


def decode_status(message: NodeStatus) -> Status:
    """The status in a message. Raises PeerError."""
    try:
        members = msgpack.unpackb(message.members, strict_map_key=False)
    except (ValueError, TypeError) as error:
        # A key that is a list is a TypeError.
        raise PeerError(f"a node's status is not msgpack: {error}") from error
    if not isinstance(members, dict):
        raise PeerError("a node's status is not a map")
    known = {name: value for name, value in members.items() if name in _TYPES}
    for name, value in known.items():
        if type(value) is not _TYPES[name]:
            raise PeerError(f"{name} of a node's status is {value!r}")
    status = Status(**known)
    whole = all(type(each) is int for pair in status.met.items() for each in pair)
    if not whole or any(
        type(name) is not str or type(at) is not int for name, at in status.used.items()
    ):
        raise PeerError("a map in a node's status has members of other types")
    return status


class Statuses:
    """The newest status of each connected peer."""

    def __init__(self) -> None:
        self._heard: dict[int, tuple[Status, int]] = {}

    def hear(self, peer: int, message: NodeStatus, wall_us: int) -> Status:
        """A peer's status came at `wall_us` by this node's clock. Raises PeerError."""
        status = decode_status(message)
        self._heard[peer] = (status, wall_us)
        return status

    def lost(self, peer: int) -> None:
        """The peer is not connected any more."""
        self._heard.pop(peer, None)

    def of(self, peer: int) -> Status | None:
        """The newest status of a peer; None if it sent none, or is not connected."""
        return self._heard[peer][0] if peer in self._heard else None

    def echo(self, peer: int) -> dict[str, Any]:
        """The fields of a status that answer the newest status of its receiver."""
        if peer not in self._heard:
            return {}
        status, heard_us = self._heard[peer]
        return {"echo_wall_us": status.wall_us, "echo_heard_us": heard_us}
