"""Redis clients of a broker whose disk another program fills to the last byte, and gives back.

The real command on a small disk (filling_disk.py). What takes room is refused in words, the rest
goes on, is durable through a kill, and writes are taken again once there is room.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.resp.conftest import RespBroker
from tests.broker.resp.resp_client import RespClient, is_error
from tests.waiting import await_that

FILLING = str(Path(__file__).parents[1] / "filling_disk.py")
LIMITS = "disk_reserve_bytes = 4194304"
DISK_MIB = 48
PATIENCE_S = 30.0
REFUSED = "DISKFULL the disk has no room; reads, removals and deliveries go on"


class Filled:
    """A broker, and the file that says that somebody has taken the rest of its disk."""

    def __init__(self, broker: RespBroker, taken: Path) -> None:
        self.broker, self.taken = broker, taken

    def fill(self) -> None:
        self.taken.touch()
        self.until(lambda client: is_error(client.call("SET", "probe", "1"), "DISKFULL"))

    def give_back(self) -> None:
        self.taken.unlink()
        self.until(lambda client: client.call("SET", "probe", "1") == b"OK")

    def until(self, holds: Callable[[RespClient], Any]) -> None:
        client = self.broker.connect()
        await_that(
            lambda: holds(client),
            lambda: self.broker.log_path.read_text()[-4_000:],
            seconds=PATIENCE_S,
        )
        client.close()


@pytest.fixture
def filled(tmp_path: Path, start_broker: Callable[..., RespBroker]) -> Filled:
    taken = tmp_path / "taken"
    program = [sys.executable, FILLING, str(DISK_MIB), str(taken)]
    return Filled(start_broker(limits=LIMITS, program=program), taken)


def fill_keys(client: RespClient) -> None:
    """What is there before the disk is full."""
    client.call("SET", "text", "v")
    client.call("RPUSH", "list", "a", "b", "c")
    client.call("HSET", "hash", "f", "1")
    client.call("ZADD", "due", "1", "m")
    client.call("XADD", "stream", "1-1", "f", "v")
    assert client.call("DL.SEND", "t", 0, "body", "ID", "before") == b"before"


def test_the_words_and_what_goes_on(filled: Filled) -> None:
    """Refused whole, in a transaction too; removals are durable through a kill."""
    client = filled.broker.connect()
    fill_keys(client)
    waiter = filled.broker.connect()
    waiter.send("BLPOP", "queue", 0)
    filled.fill()
    for takes in (("SET", "new", "v"), ("XADD", "stream", "*", "f", "v"), ("DL.SEND", "t", 0, "x")):
        assert str(client.call(*takes)) == REFUSED, takes
    assert client.call("GET", "text") == b"v"
    assert client.call("LPOP", "list") == b"a"
    assert client.call("HDEL", "hash", "f") == 1
    assert client.call("ZREM", "due", "m") == 1
    assert client.call("XDEL", "stream", "1-1") == 1
    assert client.call("PEXPIRE", "text", 600_000) == 1
    *_, ended = client.pipeline(("MULTI",), ("DEL", "text"), ("SET", "new", "v"), ("EXEC",))
    assert is_error(ended, "EXECABORT")
    assert client.call("EXISTS", "text", "new") == 1
    assert client.pipeline(("MULTI",), ("RPOP", "list"), ("EXEC",))[-1] == [b"c"]
    assert is_error(client.call("EVAL", "return redis.call('SET', 'new', 'v')", 0), "DISKFULL")
    assert client.call("EVAL", "return redis.call('LPOP', 'list')", 0) == b"b"
    assert client.call("PUBLISH", "channel", "word") == 0
    [(sent, receipt, *_)] = client.call("DL.RECEIVE", "t", 10)
    assert sent == b"before"
    assert client.call("DL.ACK", "t", receipt) == 1
    assert filled.broker.call("GET", "/readyz").json["disk_full"] is True
    filled.broker.crash()
    filled.broker.start()
    client = filled.broker.connect()
    assert is_error(client.call("SET", "new", "v"), "DISKFULL"), "from its first turn on"
    assert client.call("EXISTS", "text", "list", "hash", "due", "new") == 1
    assert client.call("XLEN", "stream") == 0
    waiter = filled.broker.connect()
    waiter.send("BLPOP", "queue", 0)
    filled.give_back()
    assert client.call("RPUSH", "queue", "late") == 1
    assert waiter.reply() == [b"queue", b"late"]
    assert filled.broker.call("GET", "/readyz").json["disk_full"] is False
    assert filled.broker.stop() == 0
