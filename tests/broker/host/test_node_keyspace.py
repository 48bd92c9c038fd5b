"""The keyspace on a running node: snapshots by another process, values taken apart in slices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.keyspace.keyspace_files import FOLDER, SnapshotTask
from delaylog.broker.engine.keyspace.keyspace_snapshots import SnapshotFailed, SnapshotRunner
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.snapshot_child import ChildRun
from delaylog.broker.keyspace.values.kinds import HashValue
from tests.broker.engine.keyspace_work import put
from tests.broker.host.running_node import RunningNode, run_node

LIMITS = Limits(
    disk_reserve_bytes=0, reserve_file_bytes=0, keyspace_bytes=5_000, keyspace_retry_ms=100
)


async def set_key(it: RunningNode, key: bytes, value: bytes) -> None:
    """As a client's turn: answered when it is durable."""
    await it.node.durable(put(it.engine, it.clock.now_ms(), key, value))


def run(
    folder: Path,
    test: Callable[[RunningNode], Coroutine[Any, Any, None]],
    make_snapshot: SnapshotRunner = ChildRun,
) -> None:
    run_node(folder, test, limits=LIMITS, make_snapshot=make_snapshot)


def test_a_child_makes_snapshots_while_others_set_keys(tmp_path: Path) -> None:
    """A checkpoint names each at once, and a restart stands on it."""
    folder = tmp_path / "d"

    async def test(it: RunningNode) -> None:
        upkeep, count = it.engine.upkeep, 0
        while upkeep.snapshots.made < 2:
            await set_key(it, b"k%d" % (count % 50), b"%d " % count * 10)
            count += 1
            await asyncio.sleep(0.02)
        await it.until(lambda: upkeep._kept_files[-1:] == [it.engine.state.keyspace_base.file])
        values.update(it.engine.state.keyspace.databases[0].values)

    values: dict[bytes, Any] = {}
    run(folder, test)
    assert list((folder / FOLDER).glob("*.snapshot"))

    async def again(it: RunningNode) -> None:
        assert it.engine.state.keyspace.databases[0].values == values

    run(folder, again)


def test_a_failure_is_told_and_the_next_try_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[SnapshotTask] = []

    def at_second_try(task: SnapshotTask) -> ChildRun:
        tries.append(task)
        if len(tries) == 1:
            raise SnapshotFailed("cannot start a process")
        return ChildRun(task)

    async def test(it: RunningNode) -> None:
        with caplog.at_level(logging.ERROR, "delaylog.node"):
            await set_key(it, b"a", b"x" * 6_000)
            await it.until(lambda: it.engine.upkeep.snapshots.made == 1)

    run(tmp_path / "d", test, at_second_try)
    [record] = caplog.records
    assert record.why == "cannot start a process"  # type: ignore[attr-defined]


def test_an_end_does_not_wait_for_a_snapshot(tmp_path: Path) -> None:
    stopped: list[bool] = []

    class Endless:
        def __init__(self, task: SnapshotTask) -> None:
            stopped.append(False)

        def size(self) -> int | None:
            return None

        def stop(self) -> None:
            stopped.append(True)

    async def test(it: RunningNode) -> None:
        await set_key(it, b"a", b"x" * 6_000)
        await it.until(lambda: bool(stopped))

    run(tmp_path / "d", test, Endless)
    assert stopped == [False, True]


def test_large_values_are_taken_apart_beside_the_rest(tmp_path: Path) -> None:
    async def test(it: RunningNode) -> None:
        keyspace = it.engine.state.keyspace
        keyspace.discard(HashValue({b"%d" % k: b"" for k in range(100_000)}))
        assert keyspace.garbage
        await it.until(lambda: not keyspace.garbage)

    run(tmp_path / "d", test)
