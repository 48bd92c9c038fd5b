"""The keyspace on a running node: snapshots by another process, values taken apart in slices."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from delaylog.broker.engine.keyspace import keyspace_snapshots
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER, SnapshotTask
from delaylog.broker.engine.keyspace.keyspace_snapshots import SnapshotFailed, SnapshotRunner
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.system.snapshot_child import ChildRun
from delaylog.broker.keyspace.keyspace import HashValue
from tests.broker.engine.keyspace_work import put
from tests.broker.host.running_node import RunningNode, running

LIMITS = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots after few effects, and soon again after a failure."""
    monkeypatch.setattr(keyspace_snapshots, "SNAPSHOT_BYTES", 5_000)
    monkeypatch.setattr(keyspace_snapshots, "RETRY_MS", 100)


async def set_key(it: RunningNode, key: bytes, value: bytes) -> None:
    """As a client's turn: answered when it is durable."""
    await it.node.durable(put(it.engine, it.clock.now_ms(), key, value))


def a_node(
    folder: Path, make_snapshot: SnapshotRunner = ChildRun
) -> AbstractAsyncContextManager[RunningNode]:
    return running(folder, limits=LIMITS, make_snapshot=make_snapshot)


async def test_a_child_makes_snapshots_while_others_set_keys(tmp_path: Path) -> None:
    """A checkpoint names each at once, and a restart stands on it."""
    folder = tmp_path / "d"
    async with a_node(folder) as it:
        upkeep, count = it.engine.upkeep, 0
        while upkeep.snapshots.made < 2:
            await set_key(it, b"k%d" % (count % 50), b"%d " % count * 10)
            count += 1
            await asyncio.sleep(0.02)
        await it.until(
            lambda: (
                [files[FOLDER] for files in upkeep._kept_files[-1:]]
                == [{it.engine.state.keyspace_base.file}]
            )
        )
        values = dict(it.engine.state.keyspace.databases[0].values)
    assert list((folder / FOLDER).glob("*.snapshot"))
    async with a_node(folder) as it:
        assert it.engine.state.keyspace.databases[0].values == values


async def test_a_failure_is_told_and_the_next_try_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[SnapshotTask] = []

    def at_second_try(task: SnapshotTask) -> ChildRun:
        tries.append(task)
        if len(tries) == 1:
            raise SnapshotFailed("cannot start a process")
        return ChildRun(task)

    async with a_node(tmp_path / "d", at_second_try) as it:
        with caplog.at_level(logging.ERROR, "delaylog.node"):
            await set_key(it, b"a", b"x" * 6_000)
            await it.until(lambda: it.engine.upkeep.snapshots.made == 1)
    [record] = caplog.records
    assert record.why == "cannot start a process"  # type: ignore[attr-defined]


async def test_an_end_does_not_wait_for_a_snapshot(tmp_path: Path) -> None:
    stopped: list[bool] = []

    class Endless:
        def __init__(self, task: SnapshotTask) -> None:
            stopped.append(False)

        def size(self) -> int | None:
            return None

        def stop(self) -> None:
            stopped.append(True)

    async with a_node(tmp_path / "d", Endless) as it:
        await set_key(it, b"a", b"x" * 6_000)
        await it.until(lambda: bool(stopped))
    assert stopped == [False, True]


async def test_large_values_are_taken_apart_beside_the_rest(tmp_path: Path) -> None:
    async with a_node(tmp_path / "d") as it:
        keyspace = it.engine.state.keyspace
        keyspace.discard(HashValue({b"%d" % k: b"" for k in range(100_000)}))
        assert keyspace.garbage
        await it.until(lambda: not keyspace.garbage)
