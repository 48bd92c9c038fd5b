"""The keyspace on a running node: snapshots by another process, values taken apart in slices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER, SnapshotTask
from delaylog.broker.engine.keyspace.keyspace_log import log_keyspace
from delaylog.broker.engine.keyspace.keyspace_snapshots import SnapshotFailed, SnapshotRunner
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.setup import Setup
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.snapshot_child import ChildRun
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.values.kinds import HashValue
from delaylog.storage.files.os_file_system import OsFileSystem

LIMITS = Limits(
    disk_reserve_bytes=0, reserve_file_bytes=0, keyspace_bytes=5_000, keyspace_retry_ms=100
)


class Run:
    """A node over one folder."""

    def __init__(self, folder: Path, make_snapshot: SnapshotRunner) -> None:
        self.clock = BrokerClock()
        self.fatal: list[BaseException] = []
        self.engine = Engine(
            OsFileSystem(),
            str(folder),
            Setup(random=Random(1), limits=LIMITS, make_snapshot=make_snapshot),
            now_ms=self.clock.now_ms(),
        )
        self.node = ServingNode(self.engine, self.clock, self.fatal.append)
        self.node.start()
        self.executor = Executor(self.engine.state.keyspace)
        self.session = self.executor.connect(0)

    async def set(self, key: bytes, value: bytes) -> None:
        """As a client's turn: answered when it is durable."""
        now_ms = self.clock.now_ms()
        self.executor.begin(now_ms)
        self.executor.execute(self.session, [b"SET", key, value])
        await self.node.durable(log_keyspace(self.engine.state, now_ms))

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(1_000):
            assert not self.fatal, self.fatal
            if holds():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("it does not come to that")


def run(
    folder: Path,
    test: Callable[[Run], Coroutine[Any, Any, None]],
    make_snapshot: SnapshotRunner = ChildRun,
) -> None:
    async def main() -> None:
        it = Run(folder, make_snapshot)
        try:
            await test(it)
        finally:
            await it.node.stop()
        assert not it.fatal

    asyncio.run(main())


def test_a_child_makes_snapshots_while_others_set_keys(tmp_path: Path) -> None:
    """A checkpoint names each at once, and a restart stands on it."""
    folder = tmp_path / "d"

    async def test(it: Run) -> None:
        upkeep, count = it.engine.upkeep, 0
        while upkeep.snapshots.made < 2:
            await it.set(b"k%d" % (count % 50), b"%d " % count * 10)
            count += 1
            await it.until(lambda: True)
        await it.until(lambda: upkeep._kept_files[-1:] == [it.engine.state.keyspace_base.file])
        values.update(it.engine.state.keyspace.databases[0].values)

    values: dict[bytes, Any] = {}
    run(folder, test)
    assert list((folder / FOLDER).glob("*.snapshot"))

    async def again(it: Run) -> None:
        assert it.engine.state.keyspace.databases[0].values == values

    run(folder, again)


def test_a_failure_is_told_and_the_next_try_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[SnapshotTask] = []

    def at_second_try(task: SnapshotTask) -> ChildRun:
        tries.append(task)
        if len(tries) == 1:
            raise SnapshotFailed("no process for it")
        return ChildRun(task)

    async def test(it: Run) -> None:
        with caplog.at_level(logging.ERROR, "delaylog.node"):
            await it.set(b"a", b"x" * 6_000)
            await it.until(lambda: it.engine.upkeep.snapshots.made == 1)

    run(tmp_path / "d", test, at_second_try)
    [record] = caplog.records
    assert record.why == "no process for it"  # type: ignore[attr-defined]


def test_an_end_does_not_wait_for_a_snapshot(tmp_path: Path) -> None:
    stopped: list[bool] = []

    class Endless:
        def __init__(self, task: SnapshotTask) -> None:
            stopped.append(False)

        def size(self) -> int | None:
            return None

        def stop(self) -> None:
            stopped.append(True)

    async def test(it: Run) -> None:
        await it.set(b"a", b"x" * 6_000)
        await it.until(lambda: bool(stopped))

    run(tmp_path / "d", test, Endless)
    assert stopped == [False, True]


def test_large_values_are_taken_apart_beside_the_rest(tmp_path: Path) -> None:
    async def test(it: Run) -> None:
        keyspace = it.engine.state.keyspace
        keyspace.discard(HashValue({b"%d" % k: b"" for k in range(100_000)}))
        assert keyspace.garbage
        await it.until(lambda: not keyspace.garbage)

    run(tmp_path / "d", test)
