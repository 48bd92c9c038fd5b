"""Effects that only 0.1.0 left are applied as it applied them.

Method: the effects, and what the keys held behind them, were taken from 0.1.0.
"""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.keyspace.applying import apply_effects
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.registry import COMMANDS

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
]


@pytest.mark.parametrize(("effects", "held"), CASES, ids=[case[0] for case in CASES])
def test_applied(effects: str, held: bytes | None) -> None:
    keyspace = Keyspace(Random(1))
    apply_effects(keyspace, [effect.encode().split() for effect in effects.split(", ")])
    value = keyspace.databases[0].values.get(b"k")
    assert (None if value is None else bytes(value)) == held  # type: ignore[arg-type]


def test_none_is_a_command() -> None:
    assert not {b"setbit", b"bitop", b"bitfield"} & COMMANDS.keys()


def test_nothing_else_is_applied() -> None:
    with pytest.raises(AssertionError, match="unknown command"):
        apply_effects(Keyspace(Random(1)), [[b"GETBIT", b"k", b"1"]])
