"""Effects that only 0.1.0 left are applied as it applied them.

Method: the effects, and what the keys held behind them, were taken from 0.1.0.
"""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from delaylog.broker.keyspace.applying import apply_effects
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.old_effects import _EFFECTS
from delaylog.broker.keyspace.registry import COMMANDS
from delaylog.broker.keyspace.running.executor import Executor
from tests.broker.keyspace.effects import plain

CASES = [
    ("SETBIT k 70 1, SETBIT k 7 1, setbit k 70 0, SETBIT k 0 1", b"\x81" + bytes(8)),
    ("SET k foobar, SETBIT k 3 1", b"voobar"),
    ("SET a abc, SET b 12345, BITOP AND k a b", b'!"#\x00\x00'),
    ("SET a abc, SET b 12345, BITOP or k a b", b"qrs45"),
    ("SET a abc, SET b 12345, BITOP XOR k a b none", b"PPP45"),
    ("SET a abc, BITOP NOT k a", b"\x9e\x9d\x9c"),
    ("SET a abc, BITOP NOT k a, BITOP NOT k k", b"abc"),
    ("SET k x, BITOP AND k none nothing", None),
    ("BITFIELD k SET u8 0 200 INCRBY u8 0 100 GET u8 0", b","),
    ("BITFIELD k SET i8 #1 -5 INCRBY i8 #1 -125", b"\x00~"),
    ("BITFIELD k OVERFLOW SAT INCRBY i8 #2 200 INCRBY u4 36 99", b"\x00\x00\x7f\x00\x0f"),
    ("bitfield k overflow fail incrby u2 0 9 overflow wrap incrby u2 0 2", b"\x80"),
    ("BITFIELD k SET u63 1 -1", b"\x7f" + b"\xff" * 7),
    (
        "BITFIELD k SET i64 2 -9223372036854775808 INCRBY i64 2 -1",
        b"\x1f" + b"\xff" * 7 + b"\xc0",
    ),
    # All of it overflowed, but the string has grown.
    ("BITFIELD k OVERFLOW FAIL INCRBY u1 30 7", bytes(4)),
    ("BITFIELD k SET i5 3 -11 SET u7 13 100", b"\x15\x06@"),
    ("BITFIELD k SET u8 0 -1 SET u4 #3 300", b"\xff\x0c"),
    ("SET k text, APPEND k more, APPEND k !", b"textmore!"),
    ("append k new", b"new"),
    ("SET k text, SETRANGE k 2 XX, SETRANGE k 6 yy", b"teXX\0\0yy"),
    ("SETRANGE k 3 a", b"\0\0\0a"),
    ("MSETNX j 1 k 2", b"2"),
]
SETS = "ZADD z 1 a 2.5 b -3 c, ZADD y 0.1 a 0.2 b inf d, SADD t a b"
STORED: list[tuple[str, dict[bytes, float]]] = [
    ("ZUNIONSTORE k 2 z y", {b"c": -3, b"a": 1.1, b"b": 2.7, b"d": inf}),
    (
        "ZUNIONSTORE k 3 z y t weights 2 0.5 -1 aggregate max",
        {b"c": -6, b"a": 2, b"b": 5, b"d": inf},
    ),
    (
        "ZUNIONSTORE k 2 y z AGGREGATE MIN WEIGHTS 1 -inf",
        {b"a": -inf, b"b": -inf, b"c": inf, b"d": inf},
    ),
    ("ZUNIONSTORE k 2 y y WEIGHTS inf -inf", {b"a": 0, b"b": 0, b"d": 0}),
    ("ZADD k 1 a, zunionstore k 1 none", {}),
    ("ZINTERSTORE k 2 z y", {b"a": 1.1, b"b": 2.7}),
    ("ZINTERSTORE k 3 t y z WEIGHTS 3 2 1 AGGREGATE SUM", {b"a": 4.2, b"b": 5.9}),
    ("ZINTERSTORE k 2 y y WEIGHTS 1 -1", {b"a": 0, b"b": 0, b"d": 0}),
    ("ZDIFFSTORE k 2 z y", {b"c": -3}),
    ("zdiffstore k 3 y z t", {b"d": inf}),
    ("ZDIFFSTORE k 1 t", {b"a": 1, b"b": 1}),
]
KINDS = [
    *("SET s text", "HSET s f v", "RPUSH s a b", "SADD s a b", "ZADD s 1 a 2 b"),
    "XADD s 1-1 f v, XGROUP CREATE s g 0, XREADGROUP GROUP g c STREAMS s >",
]


def applied(*effects: str) -> Keyspace:
    keyspace = Keyspace(Random(1))
    keyspace.stop_expiring()
    lines = ", ".join(effects).split(", ")
    apply_effects(keyspace, [line.encode().split() for line in lines])
    return keyspace


@pytest.mark.parametrize(("effects", "held"), CASES, ids=[case[0] for case in CASES])
def test_strings(effects: str, held: bytes | None) -> None:
    value = applied(effects).databases[0].values.get(b"k")
    assert (None if value is None else bytes(value)) == held  # type: ignore[arg-type]


def test_replies_do_not_change_with_the_string() -> None:
    """A string that was changed in place is copied when it leaves."""
    keyspace = applied("SET k ab", "APPEND k c")
    executor = Executor(keyspace)
    session = executor.connect(0)
    got = executor.execute(session, [b"GET", b"k"])
    both = executor.execute(session, [b"MGET", b"k", b"k"])
    apply_effects(keyspace, [[b"APPEND", b"k", b"d"]])
    assert (got, both) == (b"abc", [b"abc", b"abc"])
    assert executor.execute(session, [b"GET", b"k"]) == b"abcd"


@pytest.mark.parametrize(("effects", "held"), STORED, ids=[case[0] for case in STORED])
def test_combined_sorted_sets(effects: str, held: dict[bytes, float]) -> None:
    value = applied(SETS, effects).databases[0].values.get(b"k")
    scores = {} if value is None else value.scores  # type: ignore[union-attr]
    assert scores == pytest.approx(held, abs=0)


@pytest.mark.parametrize("made", KINDS)
def test_a_copy_shares_nothing(made: str) -> None:
    keyspace = applied(made, "PEXPIREAT s 99", "COPY s k", "copy s t db 3 replace")
    first, third = keyspace.databases[0], keyspace.databases[3]
    assert (first.expires, third.expires) == ({b"s": 99, b"k": 99}, {b"t": 99})
    held = plain(first.values[b"s"])
    assert plain(first.values[b"k"]) == plain(third.values[b"t"]) == held
    apply_effects(keyspace, [[b"DEL", b"s"]])
    keyspace.free_slice()
    assert plain(first.values[b"k"]) == held
    assert first.values[b"k"] is not third.values[b"t"] or made.startswith("SET")


def test_keys_change_their_database() -> None:
    keyspace = applied("SET a 1", "PEXPIREAT a 99", "SET b 2", "MOVE a 3", "SWAPDB 3 0")
    first, third = keyspace.databases[0], keyspace.databases[3]
    assert (first.values, first.expires) == ({b"a": b"1"}, {b"a": 99})
    assert (third.values, third.expires) == ({b"b": b"2"}, {})


def test_none_is_a_command() -> None:
    assert not _EFFECTS.keys() & COMMANDS.keys()


def test_nothing_else_is_applied() -> None:
    with pytest.raises(AssertionError, match="unknown command"):
        apply_effects(Keyspace(Random(1)), [[b"GETBIT", b"k", b"1"]])
