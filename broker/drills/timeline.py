"""When the cluster served: every acknowledged send and every delivery, by the client's clock.

The time of a fault is of the same clock. So the timeline tells how long after a fault the cluster
served again, and the longest pause around the fault.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass


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
