"""The keyspace's own upkeep: hints to keys that expire, and what was removed, in bounded slices."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.keyspace.keyspace import ExpiryWheel, Keyspace
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


@pytest.mark.parametrize("stale", [0, 4], ids=["all valid", "four of five stale"])
def test_a_crowded_second_is_looked_at_in_slices(stale: int) -> None:
    """Keys expire in their milliseconds, and others may join their second meanwhile."""
    expires = {(0, b"%d" % number): NOW_MS + number % 1_000 for number in range(20_000)}
    wheel = ExpiryWheel()
    for database, key in expires:
        wheel.add(database, key, NOW_MS)
    for number in range(stale * len(expires)):
        wheel.add(1, b"%d" % number, NOW_MS)
    looked = 0

    def expires_at(database_key: tuple[int, bytes]) -> int | None:
        nonlocal looked
        looked += 1
        return expires.get(database_key)

    gone: list[tuple[int, bytes]] = []
    for now_ms in (NOW_MS - 1, NOW_MS + 499, NOW_MS + 10_000):
        while (first_ms := wheel.next_ms()) is not None and first_ms <= now_ms:
            due = wheel.due(now_ms, 1_000, expires_at)
            assert looked <= 2_100 + 1_000 * stale
            looked = 0
            assert len(due) <= 1_000
            for key in due:
                assert expires.pop(key) <= now_ms
                gone.append(key)
            if len(gone) == 5_000:
                expires[0, b"late"] = NOW_MS + 700
                wheel.add(0, b"late", NOW_MS + 700)
        assert len(gone) == {NOW_MS - 1: 0, NOW_MS + 499: 10_000}.get(now_ms, 20_001)
    assert not expires
    assert not wheel.buckets
    assert wheel.hints == 0


def free(keyspace: Keyspace) -> int:
    """What the work "free" does; returns how many slices there were."""
    slices = 1
    while keyspace.free_slice(1_000):
        slices += 1
    return slices


@pytest.mark.parametrize("end", ["renew", "follow", "lead", "condemn", "inherit", "flush"])
@pytest.mark.parametrize("apart_ms", [0, 1_000], ids=["crowded", "spread"])
def test_hints_and_times_of_keys_are_freed_in_slices(apart_ms: int, end: str) -> None:
    """Tables of expiry hold times and hints, where tables of keys hold values."""
    keyspace, executor, session = a_keyspace()
    for renewal in range(4 if end == "renew" else 1):
        for number in range(3_000):
            at = b"%d" % (NOW_MS + 10**9 + 10**8 * renewal + apart_ms * number)
            executor.execute(session, [b"SET", b"%d" % number, b"v", b"PXAT", at])
    if end == "follow":
        keyspace.stop_expiring()
    elif end == "lead":
        keyspace.begin_expiring()
    elif end == "condemn":
        keyspace.condemn()
    elif end == "inherit":
        dropped, keyspace = keyspace, Keyspace(Random(1))
        keyspace.inherit(dropped)
    elif end == "flush":
        executor.execute(session, [b"FLUSHALL"])
    assert keyspace.garbage
    assert free(keyspace) >= 3
    assert not keyspace.garbage
    if end == "renew":
        run_slices(keyspace, NOW_MS + 10**10)
        assert keyspace.expired_keys == 3_000


@pytest.mark.parametrize("small", [0, 300])
def test_a_flush_frees_few_large_values_and_many_small_ones_in_slices(small: int) -> None:
    keyspace, executor, session = a_keyspace()
    members = [b"%d" % number for number in range(10_000)]
    fields = [b"f", b"v"] * 10_000
    for word, key, words in (
        (b"SADD", b"set", members),
        (b"RPUSH", b"list", members),
        (b"HSET", b"hash", [word for member in members for word in (member, b"v")]),
        (b"ZADD", b"sorted", [word for member in members for word in (b"1", member)]),
        (b"XADD", b"stream", [b"*", *fields]),
    ):
        executor.execute(session, [word, key, *words])
    for number in range(small):
        executor.execute(session, [b"SADD", b"%d" % number, *members[:200]])
    executor.execute(session, [b"FLUSHALL"])
    assert keyspace.garbage
    assert free(keyspace) >= 10 * 4 + 200 * small // 1_000
    assert not keyspace.garbage


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
