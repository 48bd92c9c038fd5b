"""Whatever can go wrong with three members: crashes, cuts, hand-overs, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from delaylog.broker.engine.errors import NotLeadingError
from tests.broker.cluster.real.book import Violation
from tests.broker.cluster.real.disks import DiskCrashed
from tests.broker.cluster.real.lives import SIZE, Lives
from tests.broker.cluster.real.members import Life


class Troubles(Lives):
    """Members to whom one thing after the other happens."""

    async def trouble(self, seconds: float) -> None:
        """One thing after the other goes wrong."""
        acts: list[tuple[int, Callable[[], Awaitable[None] | None]]] = [
            (5, self._suggest),
            (4, self._kill),
            (3, self._fail_soon),
            (4, self._isolate),
            (3, self._hand_over),
            (2, self._restart),
            (2, self._break_link),
            (3, self._checkpoint),
            (1, self._slow),
        ]
        end = self.loop.time() + seconds
        weights = [weight for weight, _ in acts]
        tasks: set[asyncio.Task[None]] = set()
        while self.loop.time() < end and not self.faults:
            await asyncio.sleep(self.random.choice((0.05, 0.2, 0.5)) * (0.5 + self.random.random()))
            (_, act) = self.random.choices(acts, weights)[0]
            self.note(act.__name__)
            done = act()
            if done is not None:
                task = self.loop.create_task(done)  # type: ignore[arg-type]
                tasks.add(task)
        for task in tasks:
            try:
                async with asyncio.timeout(60):
                    await task
            except TimeoutError:
                self.faults.append(Violation(f"{task} does not end"))

    def _suggest(self) -> None:
        count = self.random.choice((0, 1, 1, 1, 1, 2))
        self.wanted = set(self.random.sample(range(SIZE), count))
        if count == 0:
            self.loop.call_later(0.3, self.wanted.add, self.random.randrange(SIZE))

    async def _kill(self) -> None:
        alive = self.there()
        if len(alive) >= 2:
            leaders = self.leaders()
            life = self.random.choice(leaders if leaders and self.random.random() < 0.6 else alive)
            if life.leading:
                self.wanted = {self.random.randrange(SIZE)}
            await self._crash(life.number)

    def _fail_soon(self) -> None:
        """At some operation of a disk that is to come."""
        alive = self.there()
        if len(alive) == SIZE:
            disk = self.disks[self.random.choice(alive).number]
            disk.crash_at = disk.count + self.random.randrange(1, 60)

    async def _isolate(self) -> None:
        node = self.random.randrange(SIZE)
        others = [other for other in range(SIZE) if other != node]
        if self.random.random() < 0.3:
            others = [self.random.choice(others)]
        if node in self.wanted:
            self.stubborn_until[node] = self.loop.time() + self.random.random()
        self.network.isolate(node, others)
        if self.random.random() < 0.7:
            await asyncio.sleep(self.random.random() * 0.4)
            self.wanted = {self.random.choice([n for n in range(SIZE) if n != node])}
        await asyncio.sleep(self.random.random() * 0.6)
        self.network.heal()

    async def _hand_over(self) -> None:
        for life in self.leaders():
            target = self.random.choice([None, *(n for n in range(SIZE) if n != life.number)])
            with suppress(NotLeadingError, DiskCrashed):
                # It ends by itself within seconds; on a busy machine these are longer.
                async with asyncio.timeout(30):
                    if await self._while(life, life.member.hand_over(target)) is not None:
                        self.note("handed over")

    async def _while(self, life: Life, work: Awaitable[Any]) -> Any:
        """Wait for what a node does, as long as it is there."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait([task], timeout=0.05)
            if life.over:
                task.cancel()
                return None
        return task.result()

    async def _restart(self) -> None:
        alive = self.there()
        life = self.random.choice(alive) if len(alive) == SIZE else None
        if life is None or life.stopping:
            return
        task = asyncio.ensure_future(life.stop())
        for _ in range(600):
            await asyncio.wait([task], timeout=0.05)
            if task.done() or self.lives[life.number] is not life:
                break
        if self.lives[life.number] is not life:
            task.cancel()
            return
        if not task.done():
            raise Violation(f"node {life.number} does not stop")
        if (error := task.exception()) is not None:
            if isinstance(error, DiskCrashed):
                await self._crash(life.number)
                return
            raise error
        self.lives[life.number] = None
        self.book.crashes.append((self.loop.time(), life.number))
        await asyncio.sleep(self.random.random() * 0.3)
        await self.begin(life.number)

    def _break_link(self) -> None:
        self.network.break_link(*self.random.sample(range(SIZE), 2))

    def _checkpoint(self) -> None:
        for life in self.there():
            if self.random.random() < 0.6:
                life.node.spawn("checkpoint", life.node.chores.checkpoint)
                life.node.spawn(
                    "flush", lambda life=life: life.node.engine.housekeeping.flush_work()
                )

    async def _slow(self) -> None:
        self.network.slow = 0.02
        await asyncio.sleep(0.5)
        self.network.slow = 0.0
