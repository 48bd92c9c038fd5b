"""When consumers of a group had messages under lease, by the frames of the log.

While they do, other messages wait for them: that is the evidence for slow consumers. How many
messages were under lease before the first frame is not known. The smallest number seen counts as
none, so a lease that lasts all the time is no evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from delaylog.broker.engine.late.timeline import MERGED_MS, Span
from delaylog.storage.log.payloads import LeaseDecision, MoveDecision, SettleDecision
from delaylog.storage.messages.batch import Column

BUSY_MAX: Final = 4_096
"""Busy times that are kept; those that follow lengthen the last one."""


class Workload:
    """The busy times of one group. Frames are shown to it in the order of the log."""

    def __init__(self) -> None:
        self._level = 0
        """Messages under lease, more than before the first frame."""
        self._least = 0
        self._since_ms: int | None = None
        self._busy: list[tuple[int, int]] = []

    def leased(self, lease: LeaseDecision, at_ms: int) -> None:
        """A LEASE frame of the group."""
        if lease.extends:
            return
        self._level += len(lease.refs)
        if self._since_ms is None:
            self._since_ms = at_ms

    def ended(self, decision: SettleDecision | MoveDecision, at_ms: int) -> None:
        """A SETTLE or MOVE frame of the group."""
        self._level -= _count(decision.leases, len(decision.refs))
        if self._level < self._least:
            # More were under lease at the first frame than was known.
            self._least = self._level
            self._busy = [(0, at_ms)]
            self._since_ms = None
        elif self._level == self._least and self._since_ms is not None:
            self._add(self._since_ms, at_ms)
            self._since_ms = None

    def purged(self, at_ms: int) -> None:
        """A forced purge ended all leases."""
        if self._since_ms is not None:
            self._add(self._since_ms, at_ms)
        self._level, self._since_ms = self._least, None

    def _add(self, from_ms: int, until_ms: int) -> None:
        busy = self._busy
        if busy and (from_ms <= busy[-1][1] + MERGED_MS or len(busy) >= BUSY_MAX):
            busy[-1] = (busy[-1][0], max(until_ms, busy[-1][1]))
        else:
            busy.append((from_ms, until_ms))

    def spans(
        self, from_ms: int, known_ms: int, until_ms: int, holes: Sequence[tuple[int, int]] = ()
    ) -> list[Span]:
        """Slow consumers while messages were under lease, up to `until_ms`; between `from_ms` and
        `known_ms`, when no other record tells who asked, no consumers while none was: except in
        `holes`, times of which nothing is known.
        """
        busy = self._busy if self._since_ms is None else [*self._busy, (self._since_ms, until_ms)]
        out = [Span(first, last, "slow_consumers") for first, last in busy]
        idle_ms = from_ms
        for first, last in [*sorted([*busy, *holes]), (known_ms, known_ms)]:
            if min(first, known_ms) > idle_ms:
                out.append(Span(idle_ms, min(first, known_ms), "no_consumers"))
            idle_ms = max(idle_ms, last)
        return out


def _count(leases: Column | None, rows: int) -> int:
    """How many rows of a decision were under lease."""
    if leases is None or isinstance(leases, int):
        return rows if leases else 0
    return int(np.count_nonzero(leases))
