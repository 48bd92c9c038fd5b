"""What counts as safe: what is synced, by dial what is written, or what the node says instead."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from threading import Event, current_thread, main_thread
from time import monotonic

import pytest

from delaylog.broker.host.log_commits import ROW_MIN, SELDOM, LogCommits
from delaylog.broker.host.machine import REAL, RealMachine
from delaylog.broker.host.watch.timings import Timings
from delaylog.storage.errors import DiskFailedError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.log.physical_log import PhysicalLog
from tests.waiting import until


class Run(AbstractAsyncContextManager["Run"]):
    """A log with its commits, and a node that does no more than tell who waits."""

    def __init__(
        self, folder: Path, fsync: str = "always", disk: OsFileSystem | None = None
    ) -> None:
        self._folder = folder
        self._fsync = fsync
        self._disk = disk or OsFileSystem()

    async def __aenter__(self) -> Run:
        disk = self._disk
        self.log = PhysicalLog(disk, str(self._folder / "log"))
        assert list(self.log.recover(0, 0)) == []
        self.fatal: list[BaseException] = []
        self.fail = self.fatal.append
        machine = disk if isinstance(disk, WatchedDisk) else REAL
        loop = asyncio.get_running_loop()
        self.commits = LogCommits(
            self.log, loop, self, fsync=self._fsync, machine=machine, timings=Timings()
        )
        self.commits.start()
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        self.commits.stop()
        assert kind or not self.fatal

    def turn_ended(self) -> None:
        pass

    def log_committed(self) -> None:
        self.log_synced()

    def log_synced(self) -> None:
        self.commits.waiters.reach(self.commits.position())

    def append(self) -> int:
        self.log.append_raw(bytes(64))
        self.commits.appended()
        return self.log.end_position


class WatchedDisk(OsFileSystem, RealMachine):
    """Notes for each fdatasync whether the main thread, where the loop runs, did it. It is also the
    machine whose clock times the syncs: only syncs take time.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.by_loop: list[bool] = []
        self.takes_s = 0.0
        self.error: Exception | None = None

    def steady_s(self) -> float:  # type: ignore[override]
        return self.now_s

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)

        def fdatasync() -> None:
            self.by_loop.append(current_thread() is main_thread())
            self.now_s += self.takes_s
            if self.error is not None:
                raise self.error

        file.fdatasync = fdatasync  # type: ignore[method-assign]
        return file


@pytest.fixture
def it(tmp_path: Path) -> Run:
    return Run(tmp_path)


async def test_safe_is_what_is_synced(it: Run) -> None:
    position = it.append()
    assert it.commits.position() == 0
    await it.commits.durable(position)
    assert it.log.durable_position == it.commits.position() == position
    assert it.commits.commits == 1
    assert it.commits.sync_times.recent(monotonic()).median_ms >= 1
    told: list[BaseException | None] = []
    it.commits.when_durable(position, told.append)
    assert told == [None]


async def test_the_loop_syncs_for_who_waits_alone_on_a_quick_disk(tmp_path: Path) -> None:
    """After a row of quick syncs; one that is slow holds it up once, and makes the row longer."""
    disk = WatchedDisk()
    async with Run(tmp_path, "always", disk) as it:

        async def commit(times: int = 1, callers: int = 1) -> list[bool]:
            """Whether the loop did each sync."""
            disk.by_loop.clear()
            for _ in range(times):
                position = it.append()
                for _ in range(callers - 1):
                    it.commits.when_durable(position, lambda error: None)
                await it.commits.durable(position)
            assert it.log.durable_position == it.log.end_position
            return list(disk.by_loop)

        assert await commit(2 * ROW_MIN) == [False] * ROW_MIN + [True] * ROW_MIN
        assert await commit(callers=2) == [False]
        assert await commit() == [True]
        disk.takes_s = 0.5
        assert await commit() == [True]
        disk.takes_s = 0.0
        assert not any(await commit(2 * ROW_MIN))
        assert all(await commit(SELDOM))
        disk.takes_s = 0.5
        assert await commit() == [True]
        disk.takes_s = 0.0
        assert await commit(ROW_MIN + 1) == [False] * ROW_MIN + [True]


async def test_an_error_of_a_sync_by_the_loop_ends_the_node(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with Run(tmp_path, "always", disk) as it:
        for _ in range(ROW_MIN):
            await it.commits.durable(it.append())
        disk.error = DiskFailedError("it fails")
        told: list[BaseException | None] = []
        it.commits.when_durable(it.append(), told.append)
        await until(lambda: it.fatal)
        await asyncio.sleep(0.05)
        assert disk.by_loop[-1]
        assert told == []
        assert [str(error) for error in it.fatal] == ["it fails"]
        it.fatal.clear()


async def test_by_dial_safe_is_what_is_written(tmp_path: Path) -> None:
    """Until the way out, where everything waits for its sync."""
    async with Run(tmp_path, "interval") as it:
        position = it.append()
        await it.commits.durable(position)
        assert it.commits.position() == it.log.written_position == position
        assert it.log.durable_position == it.commits.commits == 0
        it.commits.always_sync()
        assert it.commits.position() == 0
        await it.commits.durable(position)
        assert it.log.durable_position == position


async def test_another_word_for_safe(it: Run) -> None:
    """Where more has to have it than this disk, its sync answers nobody; a failure does."""
    safe = 0
    it.commits.position = lambda: safe
    first = it.append()
    wait = asyncio.ensure_future(it.commits.durable(first))
    while it.log.durable_position < first:  # noqa: ASYNC110 (another thread syncs)
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert not wait.done()
    safe = first
    it.commits.waiters.reach(safe)
    await wait
    wait = asyncio.ensure_future(it.commits.durable(it.append()))
    await asyncio.sleep(0)
    it.commits.waiters.fail_all(ConnectionError("no longer the leader"))
    with pytest.raises(ConnectionError, match="no longer"):
        await wait


async def test_another_log_takes_the_place(it: Run, tmp_path: Path) -> None:
    """When the folder is exchanged: nothing of the old one counts, and the new one is synced."""
    await it.commits.durable(it.append())
    await asyncio.to_thread(it.commits.stop)
    # Whoever still kicks meanwhile does not hold up what comes.
    it.commits.kick()
    it.log.close()
    it.log = PhysicalLog(OsFileSystem(), str(tmp_path / "other"))
    assert list(it.log.recover(0, 0)) == []
    it.commits.exchange(it.log)
    assert it.commits.position() == 0
    position = it.append()
    await it.commits.durable(position)
    assert it.log.durable_position == position


async def test_what_was_written_beside_a_sync_is_synced_after_it(it: Run) -> None:
    """Nothing is pending then, and nobody else asks for the fsync that a waiter needs."""
    sync, synced, may_end = it.log.sync, Event(), Event()

    def slow_sync() -> None:
        sync()
        synced.set()
        may_end.wait(30)

    it.log.sync = slow_sync  # type: ignore[method-assign]
    it.append()
    await asyncio.to_thread(synced.wait, 30)
    position = it.append()
    assert it.commits.write_through()
    waiting = asyncio.ensure_future(it.commits.durable(position))
    await asyncio.sleep(0.02)
    may_end.set()
    await asyncio.wait_for(waiting, 30)
    assert it.log.durable_position == position


async def test_small_frames_are_written_before_their_sync_begins(it: Run) -> None:
    """By the loop itself; then it is known how far the job under way makes them durable."""
    sync, may_sync = it.log.sync, Event()

    def late_sync() -> int:
        may_sync.wait(30)
        return sync()

    it.log.sync = late_sync  # type: ignore[method-assign]
    position = it.append()
    waiting = asyncio.ensure_future(it.commits.durable(position))
    await asyncio.sleep(0)
    assert it.log.written_position == position
    assert it.log.durable_position == 0
    assert it.commits.is_syncing(position)
    assert not it.commits.is_syncing(it.append())
    may_sync.set()
    await waiting
    assert not it.commits.is_syncing(position)
