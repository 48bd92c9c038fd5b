"""What the pumps of a node share: the attempts in flight, and the pace of targets that fail.

A failed attempt costs the broker about a millisecond: a connection, a lease, a nack. A thousand
targets that begin to hang together also time out together. So attempts at targets that fail, and
the ends of failed attempts, take turns at a fixed pace, and what is left of the loop's time goes
to targets that work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from delaylog.broker.push.outcomes import Verdict

TURN_SECONDS: Final = 0.010
"""The pace of targets that fail: 100 turns a second."""
FIRST_SECONDS: Final = 0.003
"""The pace of targets of which nothing is known, as after a start: 333 turns a second."""


class Share:
    """The attempts in flight of all pumps, which share the process's connections."""

    def __init__(self, most: int) -> None:
        self.most, self.in_flight = most, 0
        self.ended: dict[Verdict, int] = dict.fromkeys(Verdict, 0)
        self.running: set[asyncio.Task[None]] = set()
        """Attempts and settles that have not ended."""
        self._next_s = 0.0
        """When the next turn is, by the loop's clock."""

    @property
    def room(self) -> int:
        """How many attempts may begin."""
        return self.most - self.in_flight

    def run(self, work: Coroutine[None, None, None]) -> None:
        """Run it on the loop."""
        task = asyncio.get_running_loop().create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def turn(self, seconds: float = TURN_SECONDS) -> None:
        """Wait for a turn of this node, which takes so long."""
        now_s = asyncio.get_running_loop().time()
        at_s = max(self._next_s, now_s)
        self._next_s = at_s + seconds
        if at_s > now_s:
            await asyncio.sleep(at_s - now_s)
