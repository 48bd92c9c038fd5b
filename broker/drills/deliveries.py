"""What was handed out, message by message: which deliveries repeat one under an open lease.

Times are those that brokers stated in their answers, so it does not matter how long an answer was
under way. A message that comes again although its lease had not ended and was not given back was
handed out by somebody who did not know of the lease: that is what a fail-over may do to the last
moments before it, and to nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEASE_TOLERANCE_MS = 5
"""A lease's end is rounded, and two nodes told the times."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A delivery that was made again."""

    id: str
    first_ms: int
    """When it was handed out, and when again, as stated."""
    second_ms: int
    lease_ms: int
    """How much of the first lease was left."""


class Deliveries:
    """All deliveries of a drill."""

    def __init__(self) -> None:
        self.count = 0
        self.early = 0
        self.repeats: list[Repeat] = []
        self._open: dict[str, tuple[int, int]] = {}
        """Id -> when it was handed out, and until when it is leased."""
        self._handed: list[tuple[int, int, int]] = []
        """When, by which node, how many."""

    def take(
        self, node: int, ids: Sequence[str], dues_ms: Sequence[int], *, now_ms: int, until_ms: int
    ) -> None:
        """An answer of a receive: handed out at `now_ms`, leased until `until_ms`."""
        for name, due_ms in zip(ids, dues_ms, strict=True):
            if now_ms < due_ms:
                self.early += 1
            lease = self._open.get(name)
            if lease is not None:
                self._look(name, lease, now_ms)
            self._open[name] = (now_ms, until_ms)
        self.count += len(ids)
        self._handed.append((now_ms, node, len(ids)))

    def _look(self, name: str, lease: tuple[int, int], now_ms: int) -> None:
        first_ms, until_ms = lease
        # Answers of two calls may cross: the earlier one is the first, whichever is read first.
        left_ms = until_ms - max(now_ms, first_ms)
        if left_ms > LEASE_TOLERANCE_MS:
            self.repeats.append(Repeat(name, min(first_ms, now_ms), max(first_ms, now_ms), left_ms))

    def give_back(self, ids: Sequence[str]) -> None:
        """These may come again: a nack was sent."""
        for name in ids:
            self._open.pop(name, None)

    def last_handed_ms(self, node: int, first_ms: float, last_ms: float) -> int | None:
        """When that node last handed something out within a stretch."""
        found = [at for at, by, _ in self._handed if by == node and first_ms <= at <= last_ms]
        return max(found, default=None)

    def handed_between(self, node: int, first_ms: float, last_ms: float) -> int:
        """How many messages that node handed out in a stretch, both ends included."""
        return sum(n for at, by, n in self._handed if by == node and first_ms <= at <= last_ms)
