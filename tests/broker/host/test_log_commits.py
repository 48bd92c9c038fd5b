"""What counts as safe, who is told of it, and figures of recent syncs.

Safe is what is synced, by dial what is written, or what the node says instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from threading import Event, current_thread, main_thread
from time import monotonic

import pytest

from delaylog.broker.host.log_commits import (
    KEPT_SECONDS,
    ROW_MIN,
    SAMPLES_MIN,
    SELDOM,
    STALLED_SECONDS,
    TRANSFER_BYTES_PER_SECOND,
    WINDOW_SECONDS,
    Completion,
    LogCommits,
    PositionWaiters,
    SyncFigures,
    SyncTimes,
)
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
    await until(lambda: it.log.durable_position >= first)
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


# ----------- Who waits for a position is told once, in the order of positions: reached, or why not


class Leaving(Exception):
    """Why a wait ends."""


def notes(called: list[tuple[str, BaseException | None]]) -> Callable[[str], Completion]:
    """Callbacks that note a name and their argument."""
    return lambda name: lambda error: called.append((name, error))


def test_told_in_the_order_of_positions() -> None:
    called: list[tuple[str, BaseException | None]] = []
    waiters, note = PositionWaiters(), notes(called)
    for position, name in ((30, "c"), (10, "a"), (30, "d"), (20, "b"), (10, "a2")):
        waiters.add(position, note(name))
    waiters.reach(9)
    assert called == []
    waiters.reach(20)
    assert called == [("a", None), ("a2", None), ("b", None)]
    assert len(waiters) == 2
    waiters.reach(20)
    waiters.reach(100)
    assert [name for name, _ in called[3:]] == ["c", "d"]
    assert len(waiters) == 0


def test_all_fail_and_who_comes_later_waits() -> None:
    called: list[tuple[str, BaseException | None]] = []
    waiters, note, error = PositionWaiters(), notes(called), Leaving()

    def ask_again(_: BaseException | None) -> None:
        waiters.add(10, note("again"))

    waiters.add(10, ask_again)
    waiters.add(20, note("b"))
    waiters.fail_all(error)
    assert called == [("b", error)]
    assert len(waiters) == 1
    waiters.reach(10)
    assert called[1:] == [("again", None)]


async def test_futures_return_or_raise() -> None:
    waiters = PositionWaiters()
    waits = [asyncio.ensure_future(waiters.wait(position)) for position in (10, 20, 20, 30)]
    await asyncio.sleep(0)
    waiters.reach(10)
    await asyncio.wait_for(waits[0], 10)
    waits[1].cancel()
    await asyncio.wait(waits[1:2])
    waiters.fail_all(Leaving("elsewhere"))
    for each in waits[2:]:
        with pytest.raises(Leaving, match="elsewhere"):
            await asyncio.wait_for(each, 10)
    assert waits[1].cancelled()


async def test_who_went_away_is_passed_over() -> None:
    waiters = PositionWaiters()
    gone, stays = (asyncio.ensure_future(waiters.wait(10)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    waiters.reach(10)
    await asyncio.wait_for(stays, 10)
    assert gone.cancelled()


def test_who_waits_no_longer_is_not_told() -> None:
    called: list[tuple[str, BaseException | None]] = []
    waiters, note = PositionWaiters(), notes(called)
    leaving = note("leaving")
    waiters.add(10, note("a"))
    waiters.add(10, leaving)
    waiters.add(20, note("b"))
    waiters.remove(10, leaving)
    waiters.reach(20)
    assert [name for name, _ in called] == ["a", "b"]


# ------------------------- Figures of recent syncs: robust, fading, and aware of a sync that hangs


def take(times: SyncTimes, at: float, seconds: float, *, size: int = 1) -> None:
    """A job that ends at `at` and took so long."""
    times.began_s = at - seconds
    times.end(at, size)


def test_without_samples_there_is_no_figure() -> None:
    times = SyncTimes()
    assert times.recent(5.0) == SyncFigures(0, 0)
    take(times, 6.0, 0.2, size=0)
    assert times.recent(6.0) == SyncFigures(0, 0)


def test_one_outlier_moves_the_maximum_alone() -> None:
    times = SyncTimes()
    for at in range(9):
        take(times, 10 + at / 10, 0.004)
    take(times, 11.0, 0.9)
    assert times.recent(11.0) == SyncFigures(4, 900, fresh=True)
    assert times.recent(11.0 + WINDOW_SECONDS).max_ms == 900


def test_a_large_batch_on_a_plain_disk_is_no_slow_sync() -> None:
    times = SyncTimes()
    take(times, 1.0, 0.51, size=TRANSFER_BYTES_PER_SECOND // 2)
    assert times.recent(1.0) == SyncFigures(10, 10, fresh=True)


def test_a_fast_sync_is_no_missing_one() -> None:
    times = SyncTimes()
    take(times, 1.0, 0.0001)
    assert times.recent(1.0) == SyncFigures(1, 1, fresh=True)


def test_the_newest_stay_while_nothing_is_synced() -> None:
    times = SyncTimes()
    for at in range(2 * SAMPLES_MIN):
        take(times, 10 + at, 0.3 if at >= SAMPLES_MIN else 0.001)
    assert times.recent(19 + STALLED_SECONDS).fresh
    assert times.recent(19 + WINDOW_SECONDS * 2) == SyncFigures(300, 300)
    assert times.recent(19 + KEPT_SECONDS + 1) == SyncFigures(0, 0)


def test_a_sync_that_hangs_is_the_figure() -> None:
    times = SyncTimes()
    for at in range(20):
        take(times, 10 + at / 10, 0.004)
    times.began_s = 12.0
    assert times.recent(12.0 + STALLED_SECONDS / 2).median_ms == 4
    assert times.recent(14.5) == SyncFigures(2_500, 2_500, fresh=True, hangs=True)
