"""What the clients of a drill saw: when the cluster served, and what was delivered again.

A timeline has every acknowledged send and every delivery, by the client's clock. The time of a
fault is of the same clock. So the timeline tells how long after a fault the cluster served again,
and the longest pause around the fault.

A repeat is a message that is delivered again although its lease had neither expired nor been given
back: its node did not know the lease. A failover may repeat only the deliveries of the last moments
before it. Times are those in the brokers' answers, so network delay does not matter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

# --------------------------------------------------------------------------------- the timeline


def wall_ms() -> float:
    """The wall clock's time in milliseconds."""
    return time.time() * 1000


@dataclass(frozen=True, slots=True)
class Served:
    """An answered attempt: an acknowledged send, or a receive that returned messages."""

    began_ms: float
    ended_ms: float
    node: int


@dataclass(frozen=True, slots=True)
class Again:
    """Times from a fault to the first acknowledged send, and to the first delivery after that."""

    sent_ms: float
    delivered_ms: float

    @property
    def serving_ms(self) -> float:
        """Time from the fault until both have happened."""
        return max(self.sent_ms, self.delivered_ms)


class Timeline:
    """All answered attempts of a drill, in the order of their answers."""

    def __init__(self) -> None:
        self.sends: list[Served] = []
        self.deliveries: list[Served] = []
        self._grown = asyncio.Event()

    def sent(self, served: Served) -> None:
        """Add an acknowledged send."""
        self.sends.append(served)
        self._grown.set()

    def delivered(self, served: Served) -> None:
        """Add a receive that returned messages."""
        self.deliveries.append(served)
        self._grown.set()

    async def serving_again(
        self, fault_ms: float, after_ms: float, deadline_s: float
    ) -> Again | None:
        """Wait for a send, and for a delivery answered after it, that began after `after_ms`.

        `after_ms` is when the fault was complete: an attempt that began earlier may have been
        answered before the fault. Return None if `deadline_s` passes.
        """
        try:
            async with asyncio.timeout(deadline_s):
                send = await self._first(self.sends, after_ms, 0.0)
                delivery = await self._first(self.deliveries, after_ms, send.ended_ms)
        except TimeoutError:
            return None
        return Again(send.ended_ms - fault_ms, delivery.ended_ms - fault_ms)

    async def _first(self, served: list[Served], after_ms: float, ended_ms: float) -> Served:
        at = len(served)
        while at > 0 and served[at - 1].ended_ms >= after_ms:
            at -= 1
        while True:
            for each in served[at:]:
                if each.began_ms >= after_ms and each.ended_ms >= ended_ms:
                    return each
            at = len(served)
            self._grown.clear()
            await self._grown.wait()

    def longest_silence_ms(self, first_ms: float, last_ms: float) -> tuple[float, float]:
        """Longest pause of acknowledged sends, and of deliveries, between two times."""
        return (
            _longest_gap(self.sends, first_ms, last_ms),
            _longest_gap(self.deliveries, first_ms, last_ms),
        )


def _longest_gap(served: list[Served], first_ms: float, last_ms: float) -> float:
    longest, before = 0.0, first_ms
    for each in served:
        if first_ms <= each.ended_ms <= last_ms:
            longest = max(longest, each.ended_ms - before)
            before = each.ended_ms
    return max(longest, last_ms - before)


# ----------------------------------------------------------------------- deliveries and repeats

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
