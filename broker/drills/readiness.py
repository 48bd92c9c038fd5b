"""Watches `/readyz` of all nodes during a drill, and finds outages that no node admits.

A load balancer and a pager see the cluster only through `/readyz`. So no send may be missing for
longer than two seconds while every node answers 200.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from delaylog.broker.drills.timeline import Served, wall_ms
from delaylog.broker.drills.trio import NODES, Trio

LOOK_EVERY_S: Final = 0.2
SILENT_MS: Final = 2_000.0
"""An outage of this length must be visible."""


class ReadinessWatch:
    """Asks all nodes again and again while its block runs."""

    def __init__(self, trio: Trio) -> None:
        self._trio = trio
        self.all_ready: list[tuple[float, float]] = []
        """Begin and end of each look at which every node answered 200."""
        self.not_ready_ms: list[float] = []
        """End of each other look."""

    async def __aenter__(self) -> ReadinessWatch:
        self._task = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            began_ms = wall_ms()
            answers = await asyncio.gather(*(self._trio.get(node, "/readyz") for node in NODES))
            if all(status == 200 for status, _ in answers):
                self.all_ready.append((began_ms, wall_ms()))
            else:
                self.not_ready_ms.append(wall_ms())
            await asyncio.sleep(LOOK_EVERY_S)


def unseen_outages(
    sends: Sequence[Served],
    all_ready: Sequence[tuple[float, float]],
    not_ready_ms: Sequence[float] = (),
) -> list[str]:
    """A text for each outage of sends during which every node was ready for long."""
    ended_ms = [each.ended_ms for each in sends]
    found: dict[float, str] = {}
    for began_ms, until_ms in all_ready:
        at = bisect_left(ended_ms, began_ms)
        if at in (0, len(sends)) or ended_ms[at] < until_ms:
            continue
        last_ms, next_ms = ended_ms[at - 1], ended_ms[at]
        seen = bisect_left(not_ready_ms, began_ms)
        since_ms = max(last_ms, not_ready_ms[seen - 1]) if seen else last_ms
        if began_ms - since_ms > SILENT_MS and last_ms not in found:
            found[last_ms] = (
                f"/readyz of all nodes was 200 for {began_ms - since_ms:,.0f} ms without an "
                f"acknowledged send, in an outage of {next_ms - last_ms:,.0f} ms"
            )
    return list(found.values())
