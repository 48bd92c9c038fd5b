"""The keyspace's own upkeep: hints to keys that expire, and what was removed, in bounded slices."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue

NOW_MS = 1_700_000_000_000


def a_keyspace() -> tuple[Keyspace, Executor, Session]:
    keyspace = Keyspace(Random(1))
    executor = Executor(keyspace)
    executor.begin(NOW_MS)
    return keyspace, executor, executor.connect(NOW_MS)


def run_slices(keyspace: Keyspace, now_ms: int) -> int:
    """What the engine does; returns how many slices there were."""
    slices = 0
    while (first := keyspace.next_expiry_ms()) is not None and first <= now_ms:
        keyspace.expire_due(now_ms)
        slices += 1
    return slices


@pytest.mark.parametrize("word", ["SET", "PEXPIRE"])
def test_renewed_times_leave_nothing_behind_long_before_they_come(word: str) -> None:
    """One key is given a far time again and again, always another: no hint is due for years."""
    keyspace, executor, session = a_keyspace()
    executor.execute(session, [b"SET", b"k", b"v"])
    most = 0
    for turn in range(20_000):
        delay = b"%d" % (10**9 + 1_000 * turn)
        argv = [b"SET", b"k", b"v", b"PX", delay] if word == "SET" else [b"PEXPIRE", b"k", delay]
        executor.execute(session, argv)
        run_slices(keyspace, NOW_MS)
        most = max(most, keyspace.expiry.hints)
    assert most < 2_000
    last_ms = NOW_MS + 10**9 + 1_000 * 19_999
    run_slices(keyspace, last_ms - 1)
    assert b"k" in keyspace.databases[0].values
    run_slices(keyspace, last_ms)
    assert b"k" not in keyspace.databases[0].values


def test_many_keys_are_lined_up_anew_in_slices() -> None:
    keyspace, executor, session = a_keyspace()
    for renewal in range(4):
        for number in range(10_000):
            at = b"%d" % (NOW_MS + 10**9 + 5_000_000 * renewal + number)
            executor.execute(session, [b"SET", b"%d" % number, b"v", b"PXAT", at])
    assert keyspace.expiry.hints <= 2 * 10_000 + 1_024
    run_slices(keyspace, NOW_MS)
    assert 10_000 <= keyspace.expiry.hints <= 2 * 10_000 + 1_024
    keyspace.stop_expiring()
    keyspace.begin_expiring()
    assert keyspace.expiry.hints == 0
    assert run_slices(keyspace, NOW_MS) >= 3
    assert keyspace.expiry.hints == 10_000
    run_slices(keyspace, NOW_MS + 10**10)
    assert not keyspace.databases[0].values
    assert keyspace.expired_keys == 10_000


@pytest.mark.parametrize(
    "end",
    [
        [b"DEL", b"k"],
        [b"SET", b"k", b"v"],
        [b"RENAME", b"other", b"k"],
    ],
    ids=lambda end: end[0].decode(),
)
@pytest.mark.parametrize("word", ["SADD", "HSET", "ZADD", "RPUSH"])
def test_large_values_that_go_are_taken_apart_in_slices(word: str, end: list[bytes]) -> None:
    keyspace, executor, session = a_keyspace()
    executor.execute(session, [b"SET", b"other", b"v"])
    words = [b"%d" % number for number in range(50_000)]
    if word in ("HSET", "ZADD"):
        words = [word for word in words for _ in range(2)]
    executor.execute(session, [word.encode(), b"k", *words])
    value = keyspace.databases[0].values[b"k"]
    executor.execute(session, end)
    assert keyspace.garbage == [value]
    size = len(value)
    slices = 1
    while keyspace.free_slice(4_000):
        assert size - len(value) <= 4_000
        size = len(value)
        slices += 1
    assert slices >= 12
    assert not keyspace.garbage
    if isinstance(value, SortedSetValue):
        assert len(value.order) == len(value) == 0
