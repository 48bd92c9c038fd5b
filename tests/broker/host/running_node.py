"""A node on the running loop: real engine, threads and clock, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.send.sends import send
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.machine import REAL
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import Int64Array
from tests.broker.engine.host import batch_of

PATIENCE_SECONDS = 60.0


def make_engine(folder: Path, fs: Any = None, **setup: Any) -> Engine:
    now_ms = BrokerClock().now_ms()
    return Engine(
        fs or OsFileSystem(), str(folder), Setup(random=Random(1), **setup), now_ms=now_ms
    )


class RunningNode:
    """A node over one folder, and what it holds to be fatal."""

    def __init__(self, engine: Engine) -> None:
        self.clock = BrokerClock(on_step=lambda ms: None)
        self.fatal: list[BaseException] = []
        self.engine = engine
        self.node = ServingNode(engine, self.clock, self.fatal.append, machine=REAL)

    def send(self, count: int = 1, *, size: int = 1, delay_ms: int = 0, topic: str = "t") -> int:
        """Append messages behind the admission; returns the position to wait for."""
        self.send_refs(count, size=size, delay_ms=delay_ms, topic=topic)
        return self.engine.state.log.end_position

    def send_refs(
        self, count: int = 1, *, size: int = 1, delay_ms: int = 0, topic: str = "t"
    ) -> Int64Array:
        now_ms, state = self.clock.now_ms(), self.engine.state
        made = self.engine.make_topic(topic, now_ms)
        batch = batch_of([bytes(size)] * count, delay_ms=delay_ms)
        refs = send(state, made, batch, now_ms, free_bytes=1 << 40).refs
        self.node.appended()
        return refs

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once that holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                assert not self.fatal, self.fatal
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    folder: Path, *, node_class: type[RunningNode] = RunningNode, **setup: Any
) -> AsyncIterator[Any]:
    """A node that is stopped in the end, and must have met nothing fatal."""
    it = node_class(make_engine(folder, **setup))
    it.node.start()
    try:
        yield it
    finally:
        await it.node.stop()
    assert not it.fatal
