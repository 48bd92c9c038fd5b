"""Turns that end while the log is synced: what comes meanwhile is one turn, and one frame.

A node and its endpoint in this process; clients have transports that only note what they are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, TypeAlias, cast

import pytest

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.machine import REAL
from delaylog.broker.keyspace.running.shared_state import ServerState
from delaylog.broker.resp.connection import Connection
from delaylog.broker.resp.face import RespFace
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.physical_log import PhysicalLog
from tests.waiting import until

SEND = b"*4\r\n$7\r\nDL.SEND\r\n$1\r\nt\r\n$7\r\n3600000\r\n$4\r\nbody\r\n"


def words(*args: bytes) -> bytes:
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in args)


class Transport:
    """What a client reads."""

    def __init__(self) -> None:
        self.told = b""
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.told += data

    def set_write_buffer_limits(self, high: int) -> None:
        """It is never full."""

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        """It has been told all."""

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        """It is not read for a while."""

    def resume_reading(self) -> None:
        """It is read again."""

    def get_extra_info(self, name: str) -> None:
        """Nothing is known of it."""


class Rig:
    """A node with its endpoint, and clients of it."""

    def __init__(self, folder: Path, *, after_write: bool = False) -> None:
        clock = BrokerClock()
        self.fatal: list[BaseException] = []
        setup = Setup(random=Random(1))
        engine = Engine(OsFileSystem(), str(folder), setup, now_ms=clock.now_ms())
        self.node = ServingNode(engine, clock, self.fatal.append, machine=REAL)
        self.face = RespFace(self.node, ServerState(), after_write=after_write)
        self.node.start()

    def connect(self) -> tuple[Connection, Transport]:
        connection, transport = Connection(self.face), Transport()
        connection.connection_made(cast(Any, transport))
        return connection, transport

    async def stop(self) -> None:
        await self.face.stop()
        await self.node.stop()


Served: TypeAlias = tuple[Engine, list[tuple[Connection, Transport]]]


@asynccontextmanager
async def serving(folder: Path, count: int, *, after_write: bool = False) -> AsyncIterator[Served]:
    """The engine of a node, and its Redis clients. The node must not fail meanwhile."""
    it = Rig(folder, after_write=after_write)
    yield it.node.engine, [it.connect() for _ in range(count)]
    await it.stop()
    assert not it.fatal


def hold_syncs(log: PhysicalLog, while_: Callable[[], object] = lambda: True) -> Event:
    """Let syncs of a log wait for the event that is returned, where `while_` holds."""
    sync, may_sync = log.sync, Event()

    def late_sync() -> int:
        if while_():
            may_sync.wait(30)
        return sync()

    log.sync = late_sync  # type: ignore[method-assign]
    return may_sync


@pytest.mark.parametrize("after_write", [False, True])
async def test_what_comes_during_a_sync_is_one_turn(tmp_path: Path, after_write: bool) -> None:
    async with serving(tmp_path, 4, after_write=after_write) as (engine, clients):
        log = engine.state.log
        may_sync = hold_syncs(log)
        before, ends = log.end_position, []
        for connection, transport in clients:
            connection.data_received(SEND)
            await until(lambda: log.end_position > before)
            if after_write:
                await until(lambda transport=transport: transport.told)
            await asyncio.sleep(0.01)
            ends.append(log.end_position)
        if after_write:
            assert all(transport.told for _, transport in clients)
            assert len(set(ends)) == 4
        else:
            assert not any(transport.told for _, transport in clients)
            assert len(set(ends)) == 1, "the first has made a frame, the others wait for its sync"
        may_sync.set()
        await until(lambda: all(transport.told for _, transport in clients))
        assert len({transport.told for _, transport in clients}) == 4
        assert log.durable_position == log.end_position or after_write
        assert engine.state.topics["default", "t"].sent == 4


def frames_of(engine: Engine) -> list[FrameKind]:
    """The kinds of the frames that are appended from now on."""
    append, kinds = engine.state.append, []

    def noted(kind: FrameKind, *rest: Any) -> tuple[int, int]:
        kinds.append(kind)
        return append(kind, *rest)

    engine.state.append = noted  # type: ignore[method-assign]
    return kinds


async def test_clients_of_a_turn_share_frames_and_each_keeps_its_order(tmp_path: Path) -> None:
    """Sends of two kinds, in another order by every other client."""

    def send(own: bytes, merge: bytes, body: bytes) -> bytes:
        return words(b"DL.SEND", b"t", b"3600000", body, b"ID", own, b"MERGE", merge)

    async with serving(tmp_path, 10) as (engine, clients):
        kinds = frames_of(engine)
        for number, (connection, _) in enumerate(clients):
            merges = (b"keep", b"reject") if number % 2 else (b"reject", b"keep")
            sends = [send(b"id-%d" % number, merge, merge) for merge in merges]
            connection.data_received(b"".join([*sends, SEND, SEND]))
        await until(lambda: all(transport.told for _, transport in clients))
        for number, (_, transport) in enumerate(clients):
            first, second = b"$4\r\nid-%d\r\n" % number, b"-CONFLICT"
            assert transport.told.startswith(first + (second if number % 2 else first))
        # In turn: reject, keep, plain, reject, plain.
        assert kinds.count(FrameKind.SEND) == 5


async def test_an_ack_is_logged_behind_what_its_client_sent_before_it(tmp_path: Path) -> None:
    """To another topic: a crash between two frames must not keep the ack without the send."""
    async with serving(tmp_path, 1) as (engine, [(connection, transport)]):

        async def told(*commands: bytes) -> bytes:
            transport.told = b""
            connection.data_received(b"".join(commands))
            await until(lambda: transport.told.count(b"\r\n") >= len(commands))
            return transport.told

        await told(words(b"DL.SEND", b"t", b"0", b"work"), words(b"DL.SEND", b"next", b"1", b""))
        receipt = (await told(words(b"DL.RECEIVE", b"t", b"1", b"WAIT", b"9000"))).split(b"\r\n")[5]
        kinds = frames_of(engine)
        step = words(b"DL.SEND", b"next", b"3600000", b"step")
        await told(SEND, step, words(b"DL.ACK", b"t", receipt), SEND, step)
        names = [kind.name for kind in kinds if kind in (FrameKind.SEND, FrameKind.SETTLE)]
        assert names == ["SEND", "SEND", "SETTLE", "SEND", "SEND"]


@pytest.mark.parametrize("broken", ["take", "write"])
@pytest.mark.parametrize("asked", ["SET k v", "DL.RECEIVE t 1"])
async def test_replies_that_cannot_be_made_take_no_others_along(
    tmp_path: Path, broken: str, asked: str
) -> None:
    """No memory for those of one client: it is closed, the rest of the turn is answered."""

    def no_memory(*_: object) -> bytes:
        raise MemoryError

    async with serving(tmp_path, 3) as (_, clients):
        setattr(clients[1][0], broken, no_memory)
        for connection, _ in clients:
            connection.data_received(words(*asked.encode().split()))
        await until(lambda: clients[0][1].told and clients[2][1].told)
        told = b"+OK\r\n" if asked.startswith("SET") else b"*0\r\n"
        assert [transport.told for _, transport in clients] == [told, b"", told]
        assert [transport.aborted for _, transport in clients] == [False, True, False]


async def test_a_receive_does_not_wait_for_a_sync(tmp_path: Path) -> None:
    """Its lease is written. Behind a reply that waits for the sync it waits too."""
    async with serving(tmp_path, 3) as (engine, clients):
        (sender, sent), (asker, received), (both, answered) = clients
        receive = words(b"DL.RECEIVE", b"t", b"1", b"WAIT", b"9000")
        for body in (b"one", b"two"):
            sent.told = b""
            sender.data_received(words(b"DL.SEND", b"t", b"0", body))
            await until(lambda: sent.told)
        may_sync = hold_syncs(engine.state.log)
        both.data_received(SEND + receive)
        await asyncio.sleep(0.05)
        asker.data_received(receive)
        await until(lambda: received.told)
        assert b"\r\n$3\r\none\r\n" in received.told or b"\r\n$3\r\ntwo\r\n" in received.told
        await asyncio.sleep(0.05)
        assert not answered.told
        may_sync.set()
        await until(lambda: answered.told)
        assert answered.told.startswith(b"$17\r\n")


async def test_replies_that_wait_for_the_log_are_counted(tmp_path: Path) -> None:
    """Those of a command that took more than one turn, too: they hold memory."""
    async with serving(tmp_path, 1) as (engine, [(connection, transport)]):

        async def told(*command: bytes) -> bytes:
            transport.told = b""
            connection.data_received(words(*command))
            await until(lambda: transport.told)
            return transport.told

        for _ in range(2):
            await told(b"DL.SEND", b"t", b"0", b"x" * 100_000)
        receipt = (await told(b"DL.RECEIVE", b"t", b"1", b"WAIT", b"9000")).split(b"\r\n")[5]
        topic, log = engine.state.topics["default", "t"], engine.state.log
        await until(lambda: log.durable_position == log.end_position)
        assert connection._replies.waiting_bytes == 0, "all were written"
        # The sync of the ack ends, that of the lease behind it does not.
        leases = engine.state.leases
        may_sync = hold_syncs(log, lambda: leases.leased(topic.number, topic.default.number))
        transport.told = b""
        connection.data_received(words(b"DL.ACKRECEIVE", b"t", b"1", b"RECEIPTS", receipt))
        await until(lambda: connection._replies.waiting_bytes)
        assert not transport.told
        assert connection._replies.counted_bytes > 100_000
        may_sync.set()
        await until(lambda: transport.told)
