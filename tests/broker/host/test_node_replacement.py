"""A node whose engine is replaced: the keyspace is loaded beside the loop, which goes on.

Real engines and files; a file system that waits stands for a keyspace so large that reading it
takes seconds.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from typing import Any
from weakref import ref

import pytest

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.engine.engine import Engine, Membership, Setup
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER, LoadedKeyspace
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.send.producers import FirstAnswer
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.watch.audit_files import AuditSettings
from delaylog.broker.host.watch.audit_log import AuditLog
from delaylog.broker.host.watch.metrics import Metrics
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.web.app import HttpFace
from delaylog.broker.web.mounts import Mounts
from delaylog.broker.web.request_heads import RequestChecks
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import EPOCH_NODE_BITS, FrameKind
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickSlots
from delaylog.storage.work import Work
from tests.broker.engine.keyspace_work import execute, put
from tests.waiting import until

NOW_MS = 1_700_000_000_000
LIMITS = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)
KEYS = 1_000
PRODUCERS = 1_200
"""More than are freed in one slice."""
PATIENCE_SECONDS = 60.0


class SlowFileSystem(OsFileSystem):
    """Opens a snapshot of the keyspace only when it is told to."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked = threading.Event()
        self.threads: list[int] = []

    def hold(self) -> None:
        """Let nobody open a snapshot from now on."""
        self.go_on.clear()
        self.asked.clear()

    def open(self, path: str, *, create: bool = False) -> File:
        if f"/{FOLDER}/" in path and not create:
            self.threads.append(threading.get_ident())
            self.asked.set()
            assert self.go_on.wait(PATIENCE_SECONDS), "nobody let it go on: the loop is held"
        return super().open(path, create=create)


class Place(AbstractAsyncContextManager["Place"]):
    """A member's engine that led, with a keyspace in a snapshot, and its node."""

    def __init__(self, folder: Path) -> None:
        self.fs, self.folder = SlowFileSystem(), str(folder)

    async def __aenter__(self) -> Place:
        folder = self.folder
        self.fs.mkdir(self.folder)
        self.log = PhysicalLog(self.fs, f"{folder}/log", node=1)
        assert list(self.log.recover(0, 0)) == []
        self.ticks = TickSlots(self.fs, f"{folder}/tick")
        self.fatal: list[BaseException] = []
        self.engine = self.make(None)
        self._lead()
        self.keys = self._fill()
        self.node = ServingNode(self.engine, BrokerClock(), self.fatal.append, machine=REAL)
        self.node.start()
        self.lose_leadership()
        return self

    def make(self, loaded: LoadedKeyspace | None) -> Engine:
        durable = self.log
        member = Membership(
            self.log, self.ticks, lambda: durable.durable_position, lambda position: 0
        )
        return Engine(
            self.fs,
            self.folder,
            Setup(random=Random(1), limits=LIMITS),
            now_ms=NOW_MS,
            member=member,
            loaded=loaded,
        )

    def _lead(self) -> None:
        epoch = 1 << EPOCH_NODE_BITS | 1
        self.log.append(FrameKind.EPOCH_BEGIN, [], epoch=epoch, leader_time_ms=NOW_MS, tick=Tick())
        self._sync()
        self.engine.run_inline(self.engine.follow(self.log.end_position))
        self.engine.lead(NOW_MS, NOW_MS)

    def _fill(self) -> dict[bytes, Any]:
        """Keys in a snapshot, and one more in a frame behind it that the checkpoint holds."""
        engine = self.engine
        execute(engine, NOW_MS, *([b"SET", b"%d" % number, b"v" * 20] for number in range(KEYS)))
        self._sync()
        upkeep = engine.upkeep
        engine.run_inline(upkeep.checkpoint(lambda: NOW_MS))
        engine.run_inline(
            upkeep.snapshots.work(lambda: NOW_MS, short_of_space=False, stopping=lambda: False)
        )
        put(engine, NOW_MS, b"behind", b"1")
        self._sync()
        engine.run_inline(upkeep.checkpoint(lambda: NOW_MS))
        assert engine.state.keyspace_base.file
        return dict(engine.state.keyspace.databases[0].values)

    def _sync(self) -> None:
        self.log.write_pending()
        self.log.sync()

    def lose_leadership(self) -> None:
        """With a change that is in no log: the engine has to go."""
        keyspace = self.engine.state.keyspace
        executor = Executor(keyspace)
        executor.execute(executor.connect(NOW_MS), [b"SET", b"lost", b"1"])
        self.engine.state.retire(self.log.durable_position)

    async def replacing(self) -> asyncio.Task[None]:
        """A replacement of the engine that has come to the snapshot, and is held there."""
        self.fs.hold()
        task = asyncio.create_task(self.node.exchange.replace_engine(self.make))
        await self.asked()
        return task

    async def asked(self) -> None:
        await until(self.fs.asked.is_set)

    @property
    def values(self) -> dict[bytes, Any]:
        return self.node.engine.state.keyspace.databases[0].values

    async def __aexit__(self, *error: object) -> None:
        self.fs.go_on.set()
        self.node._stopping = True
        self.node.log_commits.stop()
        self.node.background.shutdown()
        self.node.engine.close()
        self.log.close()
        self.ticks.close()


@pytest.fixture
def it(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


async def test_the_loop_goes_on_while_the_keyspace_is_loaded(it: Place) -> None:
    it.fs.threads.clear()
    replacing = await it.replacing()
    # It waits for us, and we are here: the ticks of the node, too, find nothing to do.
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert it.node.suspended
    assert it.node.engine is it.engine
    assert not replacing.done()
    it.fs.go_on.set()
    await replacing
    assert it.node.engine is not it.engine
    assert not it.node.suspended
    assert it.values == it.keys
    assert it.node.engine.state.keyspace_base.frames == 1
    assert threading.get_ident() not in it.fs.threads, "nor is it loaded once more, by the loop"
    assert not it.fatal


async def test_what_was_dropped_is_taken_apart_in_slices(it: Place) -> None:
    old = it.engine.state.keyspace
    await it.node.exchange.replace_engine(it.make)
    assert old.databases[0].values in it.node.engine.state.keyspace.garbage
    await until(lambda: not it.node.engine.state.keyspace.garbage)
    assert not old.databases[0].values
    assert it.values == it.keys


async def test_the_new_engine_is_made_once_the_tables_of_the_old_one_are_freed(it: Place) -> None:
    """A million producers would be held twice otherwise, and the process would keep that size."""
    producers = it.engine.state.producers
    for number in range(PRODUCERS):
        producers.remember(f"p{number}", 0, FirstAnswer(0, b"", 0, number), NOW_MS)
    held: list[int] = []

    def make(loaded: LoadedKeyspace | None) -> Engine:
        held.append(len(producers))
        return it.make(loaded)

    assert len(producers) == PRODUCERS
    await it.node.exchange.replace_engine(make)
    assert held == [0]


async def test_replaced_engines_are_freed_without_the_collector(it: Place) -> None:
    """It may have frozen them. The last engine is that of another folder."""
    gc.collect()
    gc.disable()
    try:
        old = [ref(it.engine), ref(it.engine.state)]
        del it.engine
        for _ in range(3):
            await it.node.exchange.replace_engine(it.make)
            old += [ref(it.node.engine), ref(it.node.engine.state)]
        await it.node.exchange.suspend()
        it.node.engine.close()
        it.node.resume(it.make(None), it.log)
        await until(lambda: not any(one() for one in old))
    finally:
        gc.enable()
    assert it.values == it.keys


async def test_no_waiting_receive_keeps_a_replaced_engine(it: Place) -> None:
    """Neither one whose client has left nor one that was refused on a connection that stays."""
    node = it.node
    settings = AuditSettings("off")
    audit = AuditLog(it.fs, f"{it.folder}/audit", 0, settings, REAL, node.space.make_room)
    face = HttpFace(node, Metrics(node), Mounts(), RequestChecks(["localhost"], ()), audit)
    audit.start()
    port = await face.start("127.0.0.1", 0)
    request = (
        b"POST /v1/topics/orders/receive HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 17\r\n\r\n" + b'{"wait_ms":60000}'
    )
    gc.collect()
    gc.disable()
    try:
        old = [ref(it.engine), ref(it.engine.state)]
        del it.engine
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in streams:
            writer.write(request)
        await until(lambda: len(it.node.waiters) == len(streams))
        streams[0][1].transport.abort()
        await until(lambda: len(it.node.waiters) == 1)
        await it.node.exchange.replace_engine(it.make)
        it.node.waiters.end_leading(NotLeadingError("gone"))
        assert b" 503 " in await streams[1][0].readline()
        # The dispatcher of an engine that does not lead has failed, with an error that refers to
        # it, and its node does no more work by itself.
        it.fatal.clear()
        while node.engine.state.free_slice():
            pass
        node.holds.look(NOW_MS)
        await until(lambda: not any(one() for one in old))
        streams[1][1].close()
    finally:
        gc.enable()
        await face.close_listener()
        await face.stop()
        await audit.stop()


async def test_a_checkpoint_that_came_meanwhile_counts(it: Place) -> None:
    """What was loaded is of another one then: it is loaded again."""
    loaded = it.engine.load_keyspace()
    assert loaded is not None
    loaded.base.frames += 1
    loaded.keyspace.databases[0].values.clear()
    it.engine.close()
    it.node.engine = it.make(loaded)
    assert it.values == it.keys


async def test_whoever_gives_up_waits_for_the_new_engine(it: Place) -> None:
    """The folder may be exchanged next: neither a thread nor half an engine may be left."""
    replacing = await it.replacing()
    replacing.cancel()
    await asyncio.sleep(0.05)
    assert not replacing.done()
    it.fs.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await replacing
    assert it.node.engine is not it.engine
    assert it.values == it.keys
    assert not it.node.suspended


async def test_a_snapshot_that_cannot_be_read_is_told(it: Place) -> None:
    base = it.engine.state.keyspace_base.file
    path = Path(it.folder) / FOLDER / base
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(CorruptionError):
        await it.node.exchange.replace_engine(it.make)
    assert not it.node.suspended


async def test_who_waits_for_room_does_not_set_what_is_dropped_to_work(it: Place) -> None:
    """It would go on with the old rows in files that the next engine has cut."""
    flushes: list[str] = []

    def flush() -> Work:
        flushes.append("of the engine that is dropped")
        yield None

    old: Any = it.engine
    old.housekeeping.crowded, old.housekeeping.flush_work = (lambda **_: True), flush
    succession = Succession(it.node, it.make, lambda: it.log.durable_position, it.fatal.append)
    it.fs.hold()
    succession.start()
    succession.leading = True
    succession.step_down(it.log.durable_position)
    await it.asked()
    # It is told at once: the exchange may take seconds, and another node leads.
    async with asyncio.timeout(PATIENCE_SECONDS):
        await it.node.room()
    assert it.node.engine is old
    it.fs.go_on.set()
    await until(lambda: it.node.engine is not old)
    assert flushes == []
    assert not it.fatal
    await succession.stop()


async def test_a_wait_that_comes_behind_the_end_of_a_leadership_is_refused(it: Place) -> None:
    """The log goes on past its position, with what the new leader says."""
    told: list[BaseException | None] = []
    it.node.when_durable(it.log.durable_position, told.append)
    (error,) = told
    assert isinstance(error, NotLeadingError)


async def test_who_waits_for_room_that_nothing_can_make_does_not_spin(it: Place) -> None:
    """Without a majority nothing is committed, so nothing may be flushed."""
    flushes: list[int] = []

    def flush() -> Work:
        flushes.append(1)
        yield None

    engine: Any = it.engine
    engine.housekeeping.crowded, engine.housekeeping.flush_work = (lambda **_: True), flush
    sender = asyncio.create_task(it.node.room())
    await asyncio.sleep(0.5)
    sender.cancel()
    assert 2 <= len(flushes) < 200


async def test_a_removal_that_did_not_get_its_turn_is_not_lost(it: Place) -> None:
    removed: list[str] = []
    it.engine.state.unneeded_files.append(lambda: removed.append("a"))
    work = it.engine.housekeeping.discard_work()
    next(work)
    work.close()
    assert len(it.engine.state.unneeded_files) == 1
    it.engine.run_inline(it.engine.housekeeping.discard_work())
    assert removed == ["a"]
    assert not it.engine.state.unneeded_files
