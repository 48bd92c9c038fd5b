"""All deliveries of a drill, and the repeats: messages delivered again during an open lease.

Times are those in the brokers' answers, so network delay does not matter. A message that is
delivered again although its lease had neither expired nor been given back came from a node that did
not know the lease. A failover may repeat only the deliveries of the last moments before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEASE_TOLERANCE_MS = 5
"""The end of a lease is rounded, and the two times may come from two nodes."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A second delivery of a message during its first lease."""

    id: str
    first_ms: int
    """Times of the first and the second delivery, by the brokers' clocks."""
    second_ms: int
    lease_ms: int
    """The rest of the first lease at the second delivery."""


class Deliveries:
    """All deliveries of a drill."""

    def __init__(self) -> None:
        self.count = 0
        self.early = 0
        self.repeats: list[Repeat] = []
        self._open: dict[str, tuple[int, int]] = {}
        """Id -> (time of the delivery, end of the lease)."""
        self._handed: list[tuple[int, int, int]] = []
        """(time, node, number of messages) of each answered receive."""

    def take(
        self, node: int, ids: Sequence[str], dues_ms: Sequence[int], *, now_ms: int, until_ms: int
    ) -> None:
        """Add the answer of a receive: delivered at `now_ms`, leased until `until_ms`."""
        for name, due_ms in zip(ids, dues_ms, strict=True):
            if now_ms < due_ms:
                self.early += 1
            lease = self._open.get(name)
            if lease is not None:
                self._check_repeat(name, lease, now_ms)
            self._open[name] = (now_ms, until_ms)
        self.count += len(ids)
        self._handed.append((now_ms, node, len(ids)))

    def _check_repeat(self, name: str, lease: tuple[int, int], now_ms: int) -> None:
        first_ms, until_ms = lease
        # The client may read the answers of two calls in the wrong order; the times decide.
        left_ms = until_ms - max(now_ms, first_ms)
        if left_ms > LEASE_TOLERANCE_MS:
            self.repeats.append(Repeat(name, min(first_ms, now_ms), max(first_ms, now_ms), left_ms))

    def give_back(self, ids: Sequence[str]) -> None:
        """Note that a nack was sent for these messages, so that they may be delivered again."""
        for name in ids:
            self._open.pop(name, None)

    def last_handed_ms(self, node: int, first_ms: float, last_ms: float) -> int | None:
        """Time of the node's last delivery between two times, both included, or None."""
        found = [at for at, by, _ in self._handed if by == node and first_ms <= at <= last_ms]
        return max(found, default=None)

    def handed_between(self, node: int, first_ms: float, last_ms: float) -> int:
        """Number of messages that the node delivered between two times, both included."""
        return sum(n for at, by, n in self._handed if by == node and first_ms <= at <= last_ms)
