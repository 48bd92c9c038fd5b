"""When a leader moves the leadership by itself, and to whom.

A leader that no majority acknowledges gives it up, since a hand-over needs a majority. Another
unfit leader moves it to the fittest voter; a fit one to a voter of strictly higher priority that
has been able to lead for a while. Attempts are spaced, with exponential backoff after a failure.
The leadership stays while no other connected voter is able to lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from delaylog.broker.cluster.fitness.judging import GAP_MS, Unfit
from delaylog.broker.cluster.fitness.targets import PRIORITY, Peer, able, best

RETRY_MS: Final = 5_000
"""Shortest time between two attempts of an unfit leader; it doubles with each failure."""
RETRY_MS_MAX: Final = 60_000
PRIORITY_EVERY_MS: Final = 30_000
PRIORITY_AFTER_MS: Final = 10_000
"""How long a voter of higher priority has to be able to lead without a break."""


class Reason(StrEnum):
    """Why the leadership moves; the values are labels of a metric."""

    FULL = "full"
    SLOW = "slow"
    CLOCK = "clock"
    CUT = "cut"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True)
class Me:
    """The leader that decides."""

    unfit: Unfit | None = None
    priority: int = PRIORITY
    zone: str = ""
    cut: bool = False
    """No majority acknowledges its log now. `Unfit.CUT` may be about the past: it moves nothing."""

    @property
    def unfit_now(self) -> bool:
        """Whether the leadership should move."""
        return self.cut or self.unfit not in (None, Unfit.CUT)


@dataclass(frozen=True, slots=True)
class Move:
    """A hand-over to begin now."""

    target: Peer
    reason: Reason


def gives_up(me: Me, peers: Sequence[Peer]) -> bool:
    """Whether a leader that is cut off gives up: another voter reports that it can lead, or no
    other member is connected, so that none can report anything.

    A voter that was cut off as the leader may reach those that this node does not reach.
    """
    others = [replace(peer, unfit="") if peer.unfit == Unfit.CUT else peer for peer in peers]
    return me.cut and (bool(able(others)) or not any(peer.connected for peer in others))


class Planner:
    """The plans of one node, whenever it leads."""

    def __init__(self) -> None:
        self._next_ms = 0
        self._next_priority_ms = 0
        self._failures = 0
        self._under_way = False
        self._seen_ms = 0
        self._better_since: dict[int, int] = {}
        """Voters of higher priority -> since when they have been able to lead."""

    def look(self, me: Me, peers: Sequence[Peer], now_ms: int) -> Move | None:
        """The move to begin now, if any; `ended` must follow it. Called while this node leads."""
        self._note_better(me, peers, now_ms)
        if self._under_way:
            return None
        if me.cut:
            return None
        if me.unfit is not None and me.unfit_now:
            target = best(peers, away_from=me.zone) if now_ms >= self._next_ms else None
            if target is None:
                return None
            self._next_ms = now_ms + min(RETRY_MS << self._failures, RETRY_MS_MAX)
            return self._begin(target, Reason(me.unfit.value))
        ripe = [peer for peer in peers if self._is_ripe(peer.node, now_ms)]
        target = best(ripe) if now_ms >= self._next_priority_ms else None
        if target is None:
            return None
        self._next_priority_ms = now_ms + (PRIORITY_EVERY_MS << self._failures)
        return self._begin(target, Reason.PRIORITY)

    def ended(self, *, done: bool) -> None:
        """The move has ended; `done` = the target has taken over."""
        assert self._under_way, "a move was begun"
        self._under_way = False
        self._failures = 0 if done else min(self._failures + 1, 4)

    def _begin(self, target: Peer, reason: Reason) -> Move:
        self._under_way = True
        return Move(target, reason)

    def _is_ripe(self, node: int, now_ms: int) -> bool:
        since_ms = self._better_since.get(node)
        return since_ms is not None and now_ms - since_ms >= PRIORITY_AFTER_MS

    def _note_better(self, me: Me, peers: Sequence[Peer], now_ms: int) -> None:
        if now_ms - self._seen_ms > GAP_MS:
            # The node did not lead, or was stopped: the time in between is unknown.
            self._better_since.clear()
        self._seen_ms = now_ms
        better = [peer.node for peer in able(peers) if peer.priority > me.priority]
        self._better_since = {node: self._better_since.get(node, now_ms) for node in better}
