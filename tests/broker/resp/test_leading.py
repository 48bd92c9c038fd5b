"""What becomes of Redis clients when the node that they speak to no longer leads.

A real node, log and endpoint in one loop; the cluster's part is played by the test, so that it
happens at the very moment at which effects are pending.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.node_role import Standalone
from delaylog.broker.keyspace.effects import apply_effects
from delaylog.broker.keyspace.running.shared_state import ServerState
from delaylog.broker.resp import face as face_module
from delaylog.broker.resp.connection import Connection
from delaylog.broker.resp.face import RespFace
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.waiting import until

LIMITS = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)
READ_ONLY = b"-READONLY You can't write against a read only replica.\r\n"
MASTER_DOWN = (
    b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n"
)
BLOCKED = [
    b"BLPOP k 0",
    b"BRPOP k 0",
    b"BLMOVE k to LEFT RIGHT 0",
    b"BRPOPLPUSH k to 0",
    b"BZPOPMIN k 0",
    b"BZPOPMAX k 0",
    b"XREAD BLOCK 0 STREAMS k $",
    b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
]
"""Commands that wait in the keyspace."""
WAITING = [
    *BLOCKED,
    b"DL.RECEIVE topic 1 WAIT 20000",
    b"SUBSCRIBE news",
    b"PSUBSCRIBE n*",
    b"MULTI\r\nSET a b",
    b"WATCH k",
    b"PING",
]
"""Commands after which a client listens or sends nothing for a while."""


class Played(Standalone):
    """A place in a cluster that the test decides about."""

    leading = True
    appending = True
    known = True
    """Who leads, if this node does not."""

    @property
    def settled(self) -> bool:
        return self.may_dispatch() or (not self.leading and self.known)

    async def until_settled(self, seconds: float) -> None:
        async with asyncio.timeout(seconds + 1):
            until = asyncio.get_running_loop().time() + seconds
            while not self.settled and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110 (the test plays)
                await asyncio.sleep(0.001)

    def may_dispatch(self) -> bool:
        return self.leading and self.appending

    def check(self) -> None:
        if not self.may_dispatch():
            raise NotLeadingError("not now")


class Rig:
    """A node that Redis clients speak to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> None:
        self.clock = BrokerClock()
        self.fatal: list[BaseException] = []
        self.node = ServingNode(self._engine(), self.clock, self.fatal.append, machine=REAL)
        self.role = Played(self.node.log_commits)
        self.node.role = self.role
        self.face = RespFace(self.node, ServerState())
        self._first = self.node.engine
        self.node.start()
        self.port = await self.face.start(lambda: Connection(self.face), "127.0.0.1", 0)

    async def __aexit__(self, *_: object) -> None:
        for writer in self.writers:
            writer.transport.abort()
        await self.face.close_listener()
        await self.face.stop()
        self.node._stopping = True
        self.node.log_commits.stop()
        self.node.background.shutdown()
        for engine in {self._first, self.node.engine}:
            engine.close()
        assert not self.fatal

    def _engine(self, name: str = "first") -> Engine:
        engine = Engine(
            OsFileSystem(),
            str(self._folder / name),
            Setup(random=Random(1), limits=LIMITS),
            now_ms=self.clock.now_ms(),
        )
        engine.state.may_append = self._may_append
        return engine

    def _may_append(self) -> bool:
        return self.role.may_dispatch()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    async def call(self, wire: bytes, size: int) -> bytes:
        reader, writer = await self.connect()
        writer.write(wire)
        async with asyncio.timeout(30):
            return await reader.readexactly(size)

    def hand_over_within_the_turn(self) -> None:
        """It begins behind the commands of the next turn, before the end of that turn."""
        run_commands = self.face.begin

        def begin() -> Any:
            asyncio.get_running_loop().call_soon(setattr, self.role, "appending", False)
            self.face.begin = run_commands  # type: ignore[method-assign]
            return run_commands()

        self.face.begin = begin  # type: ignore[method-assign]

    def step_down(self) -> None:
        """As the member does it, in one turn."""
        self.role.leading = False
        state = self.node.engine.state
        state.retire(state.log.durable_position)
        self.node.end_leading(NotLeadingError("it no longer leads"))

    def follow(self) -> None:
        """The engine is another one, with what is committed: nothing."""
        engine = self._engine("second")
        engine.state.following = True
        self.node.engine = engine


@pytest.fixture
def it(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_effects_that_are_not_in_the_log_are_never_answered(it: Rig) -> None:
    """They could not be appended because the node hands over; then another one leads."""
    reader, writer = await it.connect()
    writer.write(b"PING\r\n")
    assert await reader.readexactly(7) == b"+PONG\r\n"
    other, other_writer = await it.connect()
    it.hand_over_within_the_turn()
    # The end of the turn is called behind what was asked for before it.
    writer.write(b"SET k v\r\nGET k\r\n")
    await until(lambda: it.node.engine.state.keyspace.effects)
    other_writer.write(b"GET k\r\n")
    await asyncio.sleep(0.02)
    it.step_down()
    await asyncio.sleep(0.05)
    it.follow()
    async with asyncio.timeout(30):
        assert await reader.read() == b"", "it is told nothing, and closed"
        assert await other.read() == b"", "its command has not run"
    assert await it.call(b"SET k v\r\n", len(READ_ONLY)) == READ_ONLY


async def test_clients_are_not_shown_a_state_that_is_about_to_be_dropped(it: Rig) -> None:
    assert await it.call(b"SET k v\r\n", 5) == b"+OK\r\n"
    it.step_down()
    asked = asyncio.create_task(it.call(b"GET k\r\n", 5))
    await asyncio.sleep(0.1)
    assert not asked.done()
    it.follow()
    assert await asked == b"$-1\r\n"


async def clients_of(it: Rig, commands: list[bytes]) -> list[asyncio.StreamReader]:
    """A client for each command, with a SET in the pipeline behind it. It has read what was
    answered at once."""
    assert await it.call(b"XGROUP CREATE s g $ MKSTREAM\r\n", 5) == b"+OK\r\n"
    readers = []
    for command in commands:
        reader, writer = await it.connect()
        writer.write(b"SET before 1\r\n" + command + b"\r\n")
        assert await reader.readexactly(5) == b"+OK\r\n"
        readers.append(reader)
    await asyncio.sleep(0.05)
    for reader, writer, command in zip(readers, it.writers[1:], commands, strict=True):
        if command in (*BLOCKED, b"DL.RECEIVE topic 1 WAIT 20000"):
            writer.write(b"SET behind 1\r\n")
        else:
            assert await reader.read(1000), command
    await asyncio.sleep(0.02)
    return readers


async def read_rests(
    readers: list[asyncio.StreamReader], commands: list[bytes]
) -> dict[str, bytes]:
    """What clients read until their connections end, without those that read nothing."""
    async with asyncio.timeout(30):
        rests = [await reader.read() for reader in readers]
    return {str(word): rest for word, rest in zip(commands, rests, strict=True) if rest}


async def test_loss_of_leadership_closes_all_connections_without_a_reply(it: Rig) -> None:
    """To client libraries an error is a fault of the program: it would end workers."""
    readers = await clients_of(it, WAITING)
    it.step_down()
    assert await read_rests(readers, WAITING) == {}
    assert not it.face.connections
    it.follow()
    assert await it.call(b"EXISTS behind\r\n", 4) == b":0\r\n"


async def test_stop_closes_all_connections_without_a_reply(it: Rig) -> None:
    keyspace = it.node.engine.state.keyspace
    readers = await clients_of(it, WAITING)
    await it.face.stop()
    assert await read_rests(readers, WAITING) == {}
    assert keyspace.databases[0].find(b"behind") is None


async def test_restored_keyspace_closes_blocked_clients_without_a_reply(it: Rig) -> None:
    """As after a script of somebody else that was stopped and undone. Others stay connected."""
    readers = await clients_of(it, BLOCKED)
    idle, idle_writer = await it.connect()
    it.face.restoring.undo_script()
    idle_writer.write(b"EXISTS behind\r\n")
    async with asyncio.timeout(30):
        assert await idle.readexactly(4) == b":0\r\n"
    assert await read_rests(readers, BLOCKED) == {}


async def test_closed_client_takes_no_element(it: Rig) -> None:
    """An element that is pushed while the node closes its connections stays in the list."""
    reader, writer = await it.connect()
    writer.write(b"BLPOP queue 0\r\n")
    await asyncio.sleep(0.05)
    other = it.face.executor.connect(it.clock.now_ms())
    it.face._close_all()
    it.face.begin().handle(other, [[b"RPUSH", b"queue", b"job"]])
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    assert await it.call(b"LLEN queue\r\n", 4) == b":1\r\n"


@pytest.mark.parametrize("command", [b"SET k v", b"BLPOP k 0", b"DL.SEND topic 0 body", b"GET k"])
async def test_commands_wait_for_the_end_of_a_long_hand_over(
    it: Rig, monkeypatch: pytest.MonkeyPatch, command: bytes
) -> None:
    """They are closed without a reply if another node leads."""
    monkeypatch.setattr(face_module, "SETTLE_SECONDS", 0.05)
    it.role.appending = False
    reader, writer = await it.connect()
    writer.write(command + b"\r\nPING\r\n")
    await asyncio.sleep(0.3)
    assert not reader._buffer, "no reply during the hand-over"  # type: ignore[attr-defined]
    it.step_down()
    async with asyncio.timeout(30):
        assert await reader.read() == b""


async def test_commands_are_answered_when_a_hand_over_has_failed(
    it: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(face_module, "SETTLE_SECONDS", 0.05)
    it.role.appending = False
    reader, writer = await it.connect()
    writer.write(b"RPUSH k a\r\n")
    await asyncio.sleep(0.2)
    it.role.appending = True
    async with asyncio.timeout(30):
        assert await reader.readexactly(4) == b":1\r\n"


async def test_sends_of_a_turn_wait_for_the_end_of_a_hand_over(it: Rig) -> None:
    """It began between the command and the end of its turn."""
    reader, writer = await it.connect()
    it.hand_over_within_the_turn()
    writer.write(b"DL.SEND topic 0 body\r\n")
    await asyncio.sleep(0.1)
    assert not reader._buffer, "no reply during the hand-over"  # type: ignore[attr-defined]
    it.role.appending = True
    async with asyncio.timeout(30):
        assert (await reader.readexactly(5)).startswith(b"$17")


async def test_a_reader_waits_on_a_follower(it: Rig) -> None:
    it.step_down()
    it.follow()
    reader, writer = await it.connect()
    writer.write(b"XREAD BLOCK 0 STREAMS s $\r\n")
    await until(lambda: it.face.executor.blocked_clients)
    apply_effects(it.node.engine.state.keyspace, [[b"XADD", b"s", b"5-1", b"f", b"v"]])
    it.node.on_applied()
    wanted = b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n5-1\r\n"
    async with asyncio.timeout(30):
        assert await reader.readexactly(len(wanted)) == wanted


async def test_a_node_that_knows_no_leader_answers_all_the_same(
    it: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients look for the leader: they are not kept waiting for one that does not come."""
    monkeypatch.setattr(face_module, "SETTLE_SECONDS", 1.0)
    it.role.known = False
    it.step_down()
    it.follow()
    reader, writer = await it.connect()
    wire = b"PING\r\nGET k\r\nSET k v\r\nMULTI\r\nGET k\r\nEXEC\r\nQUIT\r\n"
    began = asyncio.get_running_loop().time()
    for turn in range(3):
        if turn:
            reader, writer = await it.connect()
        writer.write(wire)
        async with asyncio.timeout(30):
            found = await reader.read()
        aborted = b"-EXECABORT Transaction discarded because of previous errors.\r\n"
        # PING wants a leader too: so a health check says what a client would meet.
        replies = [
            MASTER_DOWN,
            MASTER_DOWN,
            READ_ONLY,
            b"+OK\r\n",
            MASTER_DOWN,
            aborted,
            b"+OK\r\n",
        ]
        assert found == b"".join(replies)
    assert 1.0 <= asyncio.get_running_loop().time() - began < 3.0, "it is waited for once"
    it.role.known = True
    assert await it.call(b"GET k\r\n", 5) == b"$-1\r\n"
