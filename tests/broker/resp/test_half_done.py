"""A write command that fails half-way: the keyspace comes back from the log, the node goes on.

A node and its endpoint in this process; the command is one of the test's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.registry import COMMANDS, WORDS, Run, command
from delaylog.broker.keyspace.replies import Reply
from delaylog.storage.errors import DiskFailedError
from tests.broker.resp.test_turns import Rig
from tests.waiting import until

FAILURES: list[Exception] = []


@pytest.fixture(autouse=True)
def halfway() -> Iterator[None]:
    """HALFWAY changes a key and fails."""

    @command("halfway", 1, "generic", "write")
    def half(run: Run, argv: Args) -> Reply:
        """Fail."""
        run.database.put(b"halfway", b"seen by nobody")
        run.database.changed(b"halfway")
        raise FAILURES[-1]

    yield
    for word in (b"halfway", b"HALFWAY"):
        WORDS.pop(word)
    del COMMANDS[b"halfway"]


async def ask(it: Rig, line: bytes) -> bytes:
    """What a new client is answered."""
    connection, transport = it.connect()
    connection.data_received(line + b"\r\n")
    await until(lambda: transport.told)
    return transport.told


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"HALFWAY\r\n",
        b"MULTI\r\nSET other 1\r\nHALFWAY\r\nSET other 2\r\nEXEC\r\n",
        b"EVAL \"redis.call('SET', 'other', 1) redis.pcall('HALFWAY') "
        b"redis.call('SET', 'other', 2)\" 0\r\n",
    ],
    ids=["alone", "in MULTI", "in a script"],
)
async def test_the_keyspace_comes_back_from_the_log(tmp_path: Path, request_bytes: bytes) -> None:
    FAILURES.append(MemoryError())
    it = Rig(tmp_path)
    assert await ask(it, b"SET k kept") == b"+OK\r\n"
    assert await ask(it, b"SET expires kept PX 100000") == b"+OK\r\n"
    same_turn, told = it.connect()
    hostile, _ = it.connect()
    same_turn.data_received(b"SET k lost\r\n")
    hostile.data_received(request_bytes)
    # A change that nobody may hear of is no change: the client is closed, not answered.
    await until(lambda: told.aborted)
    assert told.told == b""
    assert await ask(it, b"GET k") == b"$4\r\nkept\r\n"
    assert await ask(it, b"EXISTS halfway other") == b":0\r\n"
    assert await ask(it, b"SET k again") == b"+OK\r\n"
    assert not it.fatal
    await it.stop()
    it = Rig(tmp_path)
    assert await ask(it, b"GET k") == b"$5\r\nagain\r\n"
    assert await ask(it, b"DBSIZE") == b":2\r\n"
    assert it.node.engine.state.keyspace.next_expiry_ms() is not None
    await it.stop()


async def test_a_disk_that_fails_ends_the_node(tmp_path: Path) -> None:
    FAILURES.append(DiskFailedError("x"))
    it = Rig(tmp_path)
    hostile, _ = it.connect()
    hostile.data_received(b"HALFWAY\r\n")
    assert set(it.fatal) == {FAILURES[-1]}
    await it.stop()


async def test_a_turn_that_finds_no_memory_for_its_frame_has_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Rig(tmp_path)
    assert await ask(it, b"SET k kept") == b"+OK\r\n"

    def no_memory(*_: object, **__: object) -> bytes:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(
            "delaylog.broker.engine.keyspace.keyspace_snapshots.msgpack.packb", no_memory
        )
        connection, told = it.connect()
        connection.data_received(b"SET k lost\r\n")
        await until(lambda: told.aborted)
    assert await ask(it, b"GET k") == b"$4\r\nkept\r\n"
    assert not it.fatal
    await it.stop()


async def test_a_command_that_comes_in_drops_is_not_waited_for(tmp_path: Path) -> None:
    it = Rig(tmp_path)
    clients = [it.connect() for _ in range(4)]
    drops, whole, large, waits = (connection for connection, _ in clients)
    drops.data_received(b"*2\r\n$3\r\nGET\r\n$100")
    whole.data_received(b"PING\r\n")
    large.data_received(b"*2\r\n$3\r\nGET\r\n$100000\r\n")
    waits.data_received(b"BLPOP l 0\r\nPIN")
    for _ in range(3):
        await asyncio.sleep(0.01)
        drops.data_received(b"0")
        large.data_received(b"x" * 2_000)
        it.face._sweep()
    assert [transport.aborted for _, transport in clients] == [True, False, False, False]
    await it.stop()
