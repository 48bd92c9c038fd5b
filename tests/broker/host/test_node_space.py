"""The node on a disk that fills up or fails: the real node, engine and threads on a small disk.

Another program takes the last byte of a disk whose size the test sets; what is asserted is what
clients and operators see: refusals, commits from the reserve, the reserve's return, the end.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest

from delaylog.broker.engine import changes
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.upkeep import housekeeping
from delaylog.broker.host import chores
from delaylog.broker.host import node as node_module
from delaylog.broker.host.admission import Space
from delaylog.storage.errors import DiskFailedError
from delaylog.storage.hours.state_column import PAGE_ROWS, PAGE_SIZE
from delaylog.storage.layout import Int64Array
from delaylog.storage.work import Work
from tests.broker.host.running_node import RunningNode, make_engine
from tests.storage.small_disk import SmallDisk
from tests.waiting import until

MIB = 1 << 20
LIMITS = Limits(disk_reserve_bytes=4 * MIB, reserve_file_bytes=2 * MIB)


@pytest.fixture
def small_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.storage.hours.tails.TAIL_BYTES_MAX", 100_000)
    monkeypatch.setattr(housekeeping, "TAIL_BYTES_HARD_MAX", 400_000)


class Run(RunningNode, AbstractAsyncContextManager["Run"]):
    """One node, and its disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "disk"

    async def __aenter__(self) -> Run:
        self._folder.mkdir()
        self.disk = SmallDisk(str(self._folder), 32 * MIB)
        super().__init__(make_engine(self._folder / "data", self.disk, limits=LIMITS))
        self.node.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """A test ends its node, each in its way."""

    def send(self, count: int = 1, *, size: int = 10_000, delay_ms: int = 3_600_000) -> int:
        return super().send(count, size=size, delay_ms=delay_ms)

    def abandon(self) -> None:
        """Leave a node that has failed as the process would: nothing more is written."""
        self.node._stopping = True
        self.node.background.refuse()
        self.node.log_commits.stop()
        self.node.background.shutdown()
        self.node.engine.close()


@pytest.fixture
def it(tmp_path: Path) -> Run:
    return Run(tmp_path)


async def test_the_free_space_of_a_full_disk_is_measured(it: Run) -> None:
    """Sends may use none of it, but metrics tell how much there is."""
    full = SimpleNamespace(disk_full=True)
    space = Space(SimpleNamespace(engine=it.node.engine, log_commits=full), time.monotonic)
    assert space.free_bytes() == 0
    assert MIB < space.measured_bytes() < 32 * MIB
    assert space.refusing_sends
    await it.node.stop()


async def test_the_last_byte_taken_and_given_back(it: Run) -> None:
    reserve = it.node.engine.reserve
    assert reserve.whole
    assert not it.node.refusing_sends
    it.disk.take_all()
    for _ in range(30):
        await asyncio.wait_for(it.node.durable(it.send()), 30)
    assert 0 < reserve.size_bytes < 2 * MIB
    assert it.node.refusing_sends
    assert not it.node.disk_full
    it.disk.others = 0
    await it.until(lambda: not it.node.refusing_sends)
    assert reserve.whole
    await it.node.stop()
    assert not it.fatal


async def test_a_refusal_of_sends_is_logged(it: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Purpose: who has only the log learns of refusals, also while the reserve is whole.
    Method: another program leaves less than sends need, and then gives it back."""

    def said() -> list[str]:
        return [each.getMessage() for each in caplog.records if "sends are" in each.getMessage()]

    it.disk.others = it.disk.free_bytes(str(it.node.engine.folder)) - MIB
    await it.until(lambda: bool(said()))
    assert it.node.engine.reserve.whole
    it.disk.others = 0
    await it.until(lambda: len(said()) == 2)
    assert said() == [
        "sends are refused for lack of disk space",
        "sends are accepted again: there is disk space",
    ]
    assert not it.node.refusing_sends
    await it.node.stop()


async def test_changes_wait_for_their_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancels of messages that stand far apart leave a page each: no more than a bound of them
    wait in memory, and on a full disk, where none can be written, cancels go on."""

    async def cancel(it: Run, refs: Int64Array) -> None:
        await it.node.room_for_changes()
        state, now_ms = it.node.engine.state, it.clock.now_ms()
        topic = it.engine.make_topic("t", now_ms)
        found = find_origins(state, refs, topic, now_ms, topic.default)
        assert not changes.cancel(state, topic, found, now_ms).codes.any()
        it.node.appended()
        it.node.engine.housekeeping.states_due()

    monkeypatch.setattr("delaylog.storage.hours.hour_flusher.STATE_BYTES_MAX", PAGE_SIZE)
    monkeypatch.setattr(housekeeping, "STATE_BYTES_HARD_MAX", 2 * PAGE_SIZE)
    async with Run(tmp_path) as it:
        hours = it.node.engine.state.hours
        n = 8 * PAGE_ROWS
        refs = it.send_refs(n, delay_ms=3_600_000)
        most = 0
        for at in range(0, n, PAGE_ROWS):
            await cancel(it, refs[at : at + 1])
            most = max(most, hours.flusher.dirty_state_bytes)
        assert 0 < most <= 3 * PAGE_SIZE, "one page beyond the bound, and no more"
        it.disk.take_all()
        for at in range(1, n, PAGE_ROWS):
            await asyncio.wait_for(cancel(it, refs[at : at + 1]), 30)
        it.disk.others = 0
        await it.until(lambda: not it.node.refusing_sends)
        await it.node.stop()
        assert not it.fatal


@pytest.mark.usefixtures("small_tails")
async def test_large_sends_leave_room_to_single_ones(tmp_path: Path) -> None:
    """Single ones do not wait for a flush that large ones keep busy."""
    async with Run(tmp_path) as it:
        splitting = True

        def held() -> Work:
            while splitting:
                yield 0.001

        assert it.node.background.spawn("flush", held)
        pile = it.node.engine.state.hours.pile
        while pile.size_bytes < 310_000:
            await it.node.durable(it.send())
        await asyncio.wait_for(it.node.room(), 30)
        large = asyncio.create_task(it.node.turn_for_large())
        await asyncio.wait([large], timeout=0.1)
        assert not large.done()
        while pile.size_bytes < 410_000:
            await it.node.durable(it.send())
        single = asyncio.create_task(it.node.room())
        await asyncio.wait([single], timeout=0.1)
        assert not single.done(), "their room has an end too"
        splitting = False
        await asyncio.wait_for(asyncio.gather(large, single), 30)
        assert pile.size_bytes < 310_000
        await it.node.stop()
        assert not it.fatal


@pytest.mark.usefixtures("small_tails")
async def test_large_sends_are_refused_rather_than_kept_waiting_on_a_full_disk(
    tmp_path: Path,
) -> None:
    """What they would wait for cannot be written."""
    async with Run(tmp_path) as it:
        pile = it.node.engine.state.hours.pile
        it.disk.take_all()
        await it.until(lambda: it.node.refusing_sends)
        while pile.size_bytes < 500_000 and not it.node.disk_full:
            with_end = asyncio.create_task(it.node.durable(it.send()))
            await asyncio.wait([with_end], timeout=0.5)
            with_end.cancel()
        await asyncio.wait_for(it.node.turn_for_large(), 30)
        it.disk.others = 0
        await it.until(lambda: not it.node.disk_full)
        await it.node.stop()
        assert not it.fatal


async def test_log_is_freed_when_space_is_short(it: Run) -> None:
    """Checkpoints come often then and begin new segments: old log makes room by itself."""
    log = it.node.engine.state.log
    for _ in range(100):
        await it.node.durable(it.send(size=30_000))
    assert log.first_position == 0
    it.disk.others = it.disk.free_bytes("") - 3 * MIB
    await it.until(lambda: log.first_position > 2 * MIB)
    await it.until(lambda: not it.node.refusing_sends)
    await it.node.stop()
    assert not it.fatal


async def test_time_goes_on_while_nothing_is_due(it: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else hours that are over would be kept, with their files, until the next delivery."""
    monkeypatch.setattr(chores, "RETIRE_EVERY_MS", 100)
    state = it.node.engine.state
    await it.until(lambda: state.tick.second > 0)
    first = state.tick.second
    await it.until(lambda: state.tick.second > first)
    await it.node.stop()
    assert not it.fatal


async def test_an_end_without_any_space(it: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the reserve is used up too, what was not answered waits; the end does not."""
    monkeypatch.setattr(node_module, "DISK_STOP_SECONDS", 0.4)
    it.disk.take_all()
    answered = it.node.engine.state.log.durable_position
    while not it.node.disk_full:
        position = it.send(size=100_000)
        with_end = asyncio.create_task(it.node.durable(position))
        await asyncio.wait([with_end], timeout=0.5)
        if with_end.done():
            answered = position
        with_end.cancel()
    async with asyncio.timeout(30):
        await it.node.stop()
    assert it.node.engine.state.log.durable_position >= answered
    assert not it.fatal


async def test_nothing_is_answered_after_a_failed_sync(
    it: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fdatasync fails and later ones would not: the log is not asked again."""
    await it.node.durable(it.send())
    log = it.node.engine.state.log
    file = log._file
    assert file is not None
    calls = []

    def fail() -> None:
        calls.append(1)
        raise DiskFailedError("fdatasync failed")

    monkeypatch.setattr(file._file, "fdatasync", fail)  # type: ignore[attr-defined]
    answered: list[int] = []
    for _ in range(5):
        it.node.when_durable(it.send(), lambda error: answered.append(1))
        await until(lambda: it.fatal)
        await asyncio.sleep(0.05)
        monkeypatch.undo()
    assert calls == [1]
    assert not answered
    assert "fdatasync failed" in str(it.fatal[0])
    it.abandon()
