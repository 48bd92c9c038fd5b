"""What a turn of a client does to an engine's keyspace, and a snapshot of that made at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.keyspace import keyspace_snapshots
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER, SnapshotTask, make_snapshot
from delaylog.broker.engine.keyspace.keyspace_snapshots import (
    MadeHere,
    SnapshotFailed,
    SnapshotRun,
    log_keyspace,
)
from delaylog.broker.engine.limits import Limits
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.storage.files.os_file_system import OsFileSystem

SMALL = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments, and a snapshot after few effects."""
    monkeypatch.setattr("delaylog.storage.log.physical_log.SEGMENT_BYTES_MAX", 2_000)
    monkeypatch.setattr(keyspace_snapshots, "SNAPSHOT_BYTES", 300)


class Slowly:
    """A snapshot that is made when the test says so."""

    def __init__(self, task: SnapshotTask) -> None:
        self.task = task
        self.finished = self.stopped = False

    def size(self) -> int | None:
        return make_snapshot(OsFileSystem(), self.task).size if self.finished else None

    def stop(self) -> None:
        self.stopped = True


class Runner:
    """Begins snapshots for an engine: at once, or in the way that a test chooses."""

    def __init__(self) -> None:
        self.begin: Callable[[SnapshotTask], SnapshotRun] = self.here
        self.slow: list[Slowly] = []

    def __call__(self, task: SnapshotTask) -> SnapshotRun:
        return self.begin(task)

    def here(self, task: SnapshotTask) -> SnapshotRun:
        return MadeHere(OsFileSystem(), task)

    def slowly(self, task: SnapshotTask) -> SnapshotRun:
        self.slow.append(Slowly(task))
        return self.slow[-1]


def execute(engine: Engine, now_ms: int, *commands: list[bytes]) -> int:
    """Run commands as a client's turn does; returns the position to wait for."""
    executor = Executor(engine.state.keyspace)
    session = executor.connect(now_ms)
    executor.begin(now_ms)
    for argv in commands:
        executor.execute(session, argv)
    return log_keyspace(engine.state, now_ms)


def put(engine: Engine, now_ms: int, key: bytes, value: bytes, at_ms: int | None = None) -> int:
    """SET, and PEXPIREAT."""
    commands = [[b"SET", key, value]]
    if at_ms is not None:
        commands.append([b"PEXPIREAT", key, b"%d" % at_ms])
    return execute(engine, now_ms, *commands)


def snapshot(engine: Engine, now_ms: int = 0) -> bool:
    """Have one made, if there is anything new."""
    before = engine.upkeep.snapshots.made
    work = engine.upkeep.snapshots.work(lambda: now_ms)
    failure: Exception | None = None
    while True:
        try:
            step = next(work) if failure is None else work.throw(failure)
        except StopIteration:
            return engine.upkeep.snapshots.made > before
        failure = None
        if callable(step):
            # A job that fails tells the work, as in the node.
            try:
                step()
            except SnapshotFailed as error:
                failure = error
        else:
            engine.state.log.write_pending()
            engine.state.log.sync()


def files_in(folder: Path) -> list[str]:
    place = folder / FOLDER
    return sorted(os.listdir(place)) if place.is_dir() else []
