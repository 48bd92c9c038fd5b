"""Three members that start, crash and start again, and who of them leads.

All that is tried follows from one seed; what went wrong stands in `faults`, for whoever judges.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

from tests.broker.cluster.real.book import Book, Violation
from tests.broker.cluster.real.disks import DiskCrashed, ThreadedDisk
from tests.broker.cluster.real.members import Life, WildOracle, cluster, lose_ids
from tests.broker.cluster.real.network import Network

SIZE = 3
SURVIVALS = ("everything", "everything", "nothing", "prefix", "sectors")


class Lives:
    """The nodes, their disks and the network between them."""

    def __init__(self, folder: Path, seed: int, *, eager: int = 0) -> None:
        """`eager` = senders that never rest."""
        self.eager = eager
        folder.mkdir(exist_ok=True)
        self.folder, self.random = folder, Random(seed)
        self.loop = asyncio.get_running_loop()
        self.network = Network(Random(seed + 1))
        self.book = Book()
        self.lives: dict[int, Life | None] = dict.fromkeys(range(SIZE))
        self.disks = {node: ThreadedDisk(seed * 10 + node) for node in range(SIZE)}
        self.wanted: set[int] = {0}
        self.stubborn_until = dict.fromkeys(range(SIZE), 0.0)
        """A node that is cut off may think for a while that it is wanted."""
        self.faults: list[BaseException] = []
        self.over = False
        self.drained = False
        self.decided: dict[int, float] = {}
        self.starts = 0
        self.committed = dict.fromkeys(range(SIZE), 0)
        self.leaderships: set[tuple[int, int]] = set()
        self.did: dict[str, int] = {}
        self.oddities: list[dict[str, Any]] = []
        self.loop.set_exception_handler(self._odd)

    def _odd(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, DiskCrashed):
            self.oddities.append(context)
            self.faults.append(error or Violation(str(context)))

    def note(self, what: str) -> None:
        self.did[what] = self.did.get(what, 0) + 1

    async def begin(self, node: int) -> None:
        """Start a node, unless its disk goes off meanwhile."""
        self.starts += 1
        oracle = WildOracle(lambda: self._wants(node), lambda target: self._transfer(node, target))
        disk = self.disks[node]
        disk.sync_seconds = self.random.choice((0.0, 0.002, 0.006))
        try:
            life = Life(
                cluster(node, SIZE),
                disk,
                self.network,
                oracle,
                seed=self.random.randrange(1 << 30),
                on_end=self._ended,
                needed=self._needed,
            )
            self.lives[node] = life
            await life.start()
        except DiskCrashed:
            self.note("crash at start")
            await self._crash(node)

    def _wants(self, node: int) -> bool:
        return node in self.wanted or self.loop.time() < self.stubborn_until[node]

    def _needed(self) -> int:
        """Log from here on may be asked for: a node that needs a copy is not what is tried here."""
        for life in self.there():
            self.committed[life.number] = life.member.committed()
        return min(self.committed.values())

    def _transfer(self, node: int, target: int) -> None:
        self.wanted.discard(node)
        self.wanted.add(target)

    def _ended(self, life: Life, error: BaseException) -> None:
        if life.disk.crashed:
            # Whatever it says about that: nobody hears it.
            self.loop.create_task(self._crash_of(life))
        else:
            self.faults.append(error)

    async def _crash_of(self, life: Life) -> None:
        if self.lives[life.number] is life:
            await self._crash(life.number)

    async def _crash(self, node: int, seconds: float | None = None) -> None:
        """The process, or the machine, is gone; it comes back later."""
        life, self.lives[node] = self.lives[node], None
        self.book.crashes.append((self.loop.time(), node))
        if life is not None:
            life.crash()
        disk = self.disks[node]
        disk.off()
        survival = self.random.choice(SURVIVALS)
        self.disks[node] = disk.on_again(survival, self.random.randrange(1 << 30))
        if self.random.random() < 0.15:
            lose_ids(self.disks[node])
        if self.random.random() < 0.1:
            self.disks[node].crash_at = self.random.randrange(1, 80)
        pause = self.random.random() * 0.8 if seconds is None else seconds
        await asyncio.sleep(pause)
        await self.begin(node)

    def there(self) -> list[Life]:
        return [life for life in self.lives.values() if life is not None and not life.over]

    def leaders(self) -> list[Life]:
        found = [life for life in self.there() if life.leading]
        for life in found:
            self.leaderships.add((life.number, life.node.engine.state.epoch))
        return found
