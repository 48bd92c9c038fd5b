"""When the cluster served: every acknowledged send and every delivery, by the client's clock.

The fault of a round is at a time of the same clock, so two questions are answered here: how long
after it the cluster served again, and what the longest silence around it was.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass


def wall_ms() -> float:
    """The wall clock."""
    return time.time() * 1000


@dataclass(frozen=True, slots=True)
class Served:
    """An attempt that was answered: a send acknowledged, or a receive that brought something."""

    began_ms: float
    ended_ms: float
    node: int


@dataclass(frozen=True, slots=True)
class Again:
    """The first send and the first delivery after a fault, as times after it."""

    sent_ms: float
    delivered_ms: float

    @property
    def serving_ms(self) -> float:
        """Both."""
        return max(self.sent_ms, self.delivered_ms)


class Timeline:
    """Appended to by the load, asked by the drill."""

    def __init__(self) -> None:
        self.sends: list[Served] = []
        self.deliveries: list[Served] = []
        self._grown = asyncio.Event()

    def sent(self, served: Served) -> None:
        """A send was acknowledged."""
        self.sends.append(served)
        self._grown.set()

    def delivered(self, served: Served) -> None:
        """A receive brought messages."""
        self.deliveries.append(served)
        self._grown.set()

    async def serving_again(
        self, fault_ms: float, after_ms: float, deadline_s: float
    ) -> Again | None:
        """Wait for the first send and then the first delivery that began after `after_ms`.

        Later than the fault itself by the time it took to do: what began before it may have been
        answered before it. None = not within `deadline_s`.
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
        """The longest time without an acknowledged send, and without a delivery, in a stretch."""
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
