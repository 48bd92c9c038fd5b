"""Which nodes can take the leadership, and which of them should.

`refusal` says in one line why a node cannot take it, with the figure; `best` ranks those that can.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from delaylog.broker.cluster.fitness.judging import Unfit

SILENT_MS_MAX: Final = 1_500
"""Three statuses are missing on an open connection: the process, or its event loop, is stopped."""
LAG_BYTES_MAX: Final = 8 << 20
"""Most log that a target may lack: a hand-over refuses sends, and its deadline is one second."""
PRIORITY_MAX: Final = 100
PRIORITY: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another member, as this node sees it now."""

    node: int
    name: str
    connected: bool = True
    votes: bool = True
    silent_ms: int = 0
    """Time since its last status."""
    lag_bytes: int = 0
    """Log that it does not hold durably, as far as this node knows."""
    unapplied_bytes: int = 0
    unfit: str = ""
    """Its own judgement; empty = fit."""
    full: bool = False
    free_bytes: int = 0
    sync_ms: int = 0
    priority: int = PRIORITY
    zone: str = ""


def refusal(peer: Peer) -> str | None:
    """Why the peer cannot take the leadership now; None if it can."""
    name = peer.name
    if not peer.connected:
        return f"{name} is not connected"
    if not peer.votes:
        return f"{name} is a learner and cannot lead yet"
    if peer.silent_ms > SILENT_MS_MAX:
        return f"{name} is stopped: its last status came {peer.silent_ms / 1000:.1f} s ago"
    if peer.unfit == Unfit.CUT:
        return f"{name} has led while no majority acknowledged its log"
    if peer.full or peer.unfit == Unfit.FULL:
        return f"{name} has a full disk: {peer.free_bytes:,} bytes are free for messages"
    if peer.unfit == Unfit.SLOW:
        return f"{name} has a slow disk: a sync takes {peer.sync_ms:,} ms"
    if peer.unfit == Unfit.CLOCK:
        return f"{name} has a wrong clock"
    if peer.unfit:
        return f"{name} is not fit to lead: {peer.unfit[:64]}"
    if peer.lag_bytes > LAG_BYTES_MAX:
        return f"{name} lacks {peer.lag_bytes:,} bytes of the log, more than {LAG_BYTES_MAX:,}"
    if peer.unapplied_bytes > LAG_BYTES_MAX:
        return (
            f"{name} has {peer.unapplied_bytes:,} bytes of the log to apply, "
            f"more than {LAG_BYTES_MAX:,}"
        )
    return None


def able(peers: Iterable[Peer]) -> list[Peer]:
    """The peers that can take the leadership."""
    return [peer for peer in peers if refusal(peer) is None]


def best(peers: Iterable[Peer], *, away_from: str = "") -> Peer | None:
    """The fittest: by priority, then in another zone than `away_from`, then by log and sync."""

    def rank(peer: Peer) -> tuple[int, bool, int, int, int]:
        elsewhere = bool(away_from) and peer.zone != away_from
        lag_bytes = peer.lag_bytes + peer.unapplied_bytes
        return (peer.priority, elsewhere, -lag_bytes, -peer.sync_ms, -peer.node)

    return max(able(peers), key=rank, default=None)
