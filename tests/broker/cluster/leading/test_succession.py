"""When the engine follows, leads, is kept and is dropped: real engines and logs, no network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from delaylog.broker.cluster.leading.succession import LAG_BYTES_MAX, Succession
from delaylog.broker.engine.engine import Engine, Membership, Setup
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace
from delaylog.broker.engine.keyspace.keyspace_snapshots import log_keyspace
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.replication.epochs import EpochTick
from delaylog.replication.messages import Serving
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import EPOCH_NODE_BITS, FrameKind
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickSlots
from delaylog.storage.work import Work

NOW_MS = 1_700_000_000_000
MakeEngine = Callable[[LoadedKeyspace | None], Engine]


class FakeNode:
    """What a succession needs of its node; work runs on the spot."""

    def __init__(self, make: MakeEngine) -> None:
        self.engine = make(None)
        self.background = self
        self.exchange = self
        self.suspended = False
        self.clock = self
        self.leaderships = 0
        self.lags: Callable[[], bool] = lambda: False
        self.seen_lagging = False

    def now_ms(self) -> int:
        return NOW_MS

    @asynccontextmanager
    async def halted(self) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        yield

    async def run(self, work: Work) -> None:
        self.engine.run_inline(work)

    async def replace_engine(self, make: MakeEngine) -> None:
        self.suspended = True
        await asyncio.sleep(0)
        self.seen_lagging = self.lags()
        self.engine.close()
        self.engine = make(None)
        self.suspended = False

    def begin_leading(self) -> None:
        self.leaderships += 1

    def on_applied(self) -> None:
        pass


class Place(AbstractAsyncContextManager["Place"]):
    """One folder, its log, and the succession over it. Replication's part is played by the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __aenter__(self) -> Place:
        folder, fs = self._folder, OsFileSystem()
        fs.mkdir(str(folder))
        self.log = PhysicalLog(fs, f"{folder}/log", node=1)
        assert list(self.log.recover(0, 0)) == []
        self.ticks = TickSlots(fs, f"{folder}/tick")
        self.commit = 0
        self.fatal: list[BaseException] = []
        member = Membership(self.log, self.ticks, lambda: self.commit, lambda _: 0)

        def make(loaded: LoadedKeyspace | None) -> Engine:
            return Engine(
                fs,
                str(folder),
                Setup(random=Random(1)),
                now_ms=NOW_MS,
                member=member,
                loaded=loaded,
            )

        self.node: Any = FakeNode(make)
        self.succession = Succession(self.node, make, lambda: self.commit, self.fatal.append)
        self.node.lags = lambda: self.succession.lags
        self.succession.start()
        return self

    def begin(self, counter: int, node: int) -> Serving:
        """An EPOCH_BEGIN stands in the log, durably."""
        epoch = counter << EPOCH_NODE_BITS | node
        kind = FrameKind.EPOCH_BEGIN
        self.log.append(kind, [], epoch=epoch, leader_time_ms=NOW_MS, tick=Tick())
        self.sync()
        return Serving(epoch, EpochTick(epoch))

    def sync(self) -> int:
        self.log.write_pending()
        return self.log.sync()

    async def lead(self, counter: int) -> None:
        serving = self.begin(counter, 1)
        self.commit = self.log.end_position
        self.succession.serve(serving)
        await self.until(lambda: self.succession.leading)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 (a task changes it)
                await asyncio.sleep(0.001)
        assert not self.fatal

    @property
    def topics(self) -> list[str]:
        return [topic.name for topic in self.node.engine.state.by_number.values()]

    async def __aexit__(self, *error: object) -> None:
        await self.succession.stop()
        self.node.engine.close()
        self.log.close()
        self.ticks.close()


@pytest.fixture
def it(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


async def test_it_leads_when_all_is_applied(it: Place) -> None:
    serving = it.begin(1, 1)
    it.succession.serve(serving)
    await asyncio.sleep(0.02)
    assert not it.succession.leading, "its beginning is not committed yet"
    it.commit = it.log.end_position
    it.succession.look()
    await it.until(lambda: it.succession.leading)
    assert it.node.leaderships == 1
    assert it.node.engine.make_topic("t", NOW_MS).name == "t"


async def test_it_leads_when_it_is_to_before_it_starts(it: Place) -> None:
    """A node's connections come first, and a leader may hand over to it at once."""
    await it.succession.stop()
    it.succession.serve(it.begin(1, 1))
    it.commit = it.log.end_position
    it.succession.start()
    await it.until(lambda: it.succession.leading)


async def test_an_engine_that_saw_committed_frames_only_is_kept(it: Place) -> None:
    await it.lead(1)
    engine = it.node.engine
    engine.make_topic("kept", NOW_MS)
    it.commit = it.sync()
    it.succession.step_down(it.commit)
    with pytest.raises(NotLeadingError):
        engine.make_topic("too late", NOW_MS)
    await it.until(lambda: engine.state.following)
    assert it.node.engine is engine
    await it.lead(2)
    assert it.topics == ["kept"]
    assert it.node.engine.make_topic("more", NOW_MS).number == 2


@pytest.mark.parametrize("more", [0, 3], ids=["nothing came yet", "frames came already"])
async def test_what_was_cut_off_is_forgotten(it: Place, more: int) -> None:
    """Whatever the log holds and what is committed when the end of the leadership is seen: the
    engine had applied a frame that is not there any more."""
    await it.lead(1)
    engine = it.node.engine
    commit = it.commit
    engine.make_topic("lost", NOW_MS)
    it.sync()
    # In one turn: a new leader's APPEND cuts the log, adds frames and says that they are
    # committed; only then the end of the own leadership is acted on.
    it.log.cut(commit)
    for counter in range(more):
        it.begin(2 + counter, 2)
    it.commit = it.log.end_position
    it.succession.step_down(commit)
    await it.until(lambda: it.node.engine is not engine)
    assert it.node.seen_lagging, "until the next engine stands, another node had better lead"
    await it.until(lambda: it.node.engine.state.position == it.commit)
    assert it.topics == []
    assert it.node.engine.state.epoch_counter == 1 + more


@pytest.mark.parametrize("pending", [False, True])
async def test_effects_that_are_not_in_the_log_are_not_committed(it: Place, pending: bool) -> None:
    """A keyspace that is ahead of its log is dropped, one that is not goes on."""

    await it.lead(1)
    engine = it.node.engine
    keyspace = engine.state.keyspace
    executor = Executor(keyspace)
    session = executor.connect(NOW_MS)
    executor.execute(session, [b"SET", b"a", b"1"])
    log_keyspace(engine.state, NOW_MS)
    it.commit = it.sync()
    if pending:
        executor.execute(session, [b"SET", b"a", b"2"])
    it.succession.step_down(it.commit)
    executor.execute(session, [b"SET", b"b", b"late"])
    with pytest.raises(NotLeadingError):
        log_keyspace(engine.state, NOW_MS)
    keyspace.effects[:] = keyspace.effects[: 1 if pending else 0]
    await it.until(lambda: it.node.engine.state.following)
    await it.until(lambda: it.node.engine.state.position == it.commit)
    assert (it.node.engine is engine) is not pending
    assert it.node.engine.state.keyspace.databases[0].values[b"a"] == b"1"
    await it.lead(2)
    assert it.node.engine.state.keyspace.may_expire


async def test_a_leader_that_is_stopped_follows_at_the_end(it: Place) -> None:
    """So that it takes a last checkpoint like any follower; if nothing it applied can be lost."""
    await it.lead(1)
    it.node.engine.make_topic("kept", NOW_MS)
    it.commit = it.sync()
    it.succession.step_down(it.commit)
    await it.succession.stop()
    state = it.node.engine.state
    assert state.following
    assert not state.retired
    assert state.position == it.commit


async def test_whoever_has_much_to_apply_lags(it: Place) -> None:
    await it.lead(1)
    assert not it.succession.lags
    it.commit += LAG_BYTES_MAX
    assert not it.succession.lags
    it.commit += 1
    assert it.succession.lags


async def test_one_that_was_stopped_while_it_was_about_to_look_follows_again(it: Place) -> None:
    """As when a copy takes the place of the folder."""
    await it.lead(1)
    it.succession.step_down(it.log.durable_position)
    await it.until(lambda: it.node.engine.state.following)
    it.begin(2, 2)
    it.commit = it.log.end_position
    it.succession.look()
    await it.succession.stop()
    it.commit = it.node.engine.state.position
    it.succession.start()
    await asyncio.sleep(0.01)
    it.commit = it.log.end_position
    it.succession.look()
    await it.until(lambda: it.node.engine.state.position == it.commit)
