"""While there is no room, what takes room is refused, and the rest goes on."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.replies import ErrorReply
from delaylog.broker.keyspace.running.executor import Executor

FULL = b"-DISKFULL no room\r\n"


@pytest.fixture
def executor() -> Executor:
    executor = Executor(Keyspace(Random(1)))
    executor.handle(executor.connect(0), [[b"SET", b"k", b"v"], [b"RPUSH", b"l", b"a", b"b"]])
    executor.may_grow = lambda: ErrorReply(b"DISKFULL no room")
    return executor


def test_only_what_takes_room_is_refused(executor: Executor) -> None:
    session = executor.connect(0)
    executor.handle(
        session,
        [
            [b"SET", b"n", b"v"],
            [b"INCR", b"k"],
            [b"GET", b"k"],
            [b"LPOP", b"l"],
            [b"DEL", b"k"],
            [b"MULTI"],
            [b"LPUSH", b"l", b"c"],
            [b"EXEC"],
        ],
    )
    assert session.out[:5] == [FULL, FULL, b"$1\r\nv\r\n", b"$1\r\na\r\n", b":1\r\n"]
    assert session.out[6] == FULL
    assert session.out[7].startswith(b"-EXECABORT")


def test_a_transaction_that_was_queued_before_is_refused_whole(executor: Executor) -> None:
    grow, executor.may_grow = executor.may_grow, lambda: None
    session = executor.connect(0)
    executor.handle(session, [[b"MULTI"], [b"DEL", b"k"], [b"SET", b"n", b"v"]])
    executor.may_grow = grow
    executor.handle(session, [[b"EXEC"], [b"EXISTS", b"k", b"n"]])
    assert session.out[-2:] == [FULL, b":1\r\n"]
