"""Strings, keys that expire, and sums of long doubles: effects and edges.

The differential tests compare the replies.
"""

from __future__ import annotations

import pytest

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.values.number_texts import add_long_doubles, read_long_double
from tests.broker.keyspace.effects import NOW_MS, Pair


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("SET k v NX GET", [b"SET", b"k", b"v"]),
        ("SET k v EX 10", [b"SET", b"k", b"v", b"PXAT", b"%d" % (NOW_MS + 10_000)]),
        ("SET k v XX KEEPTTL", None),
        ("SETEX k 10 v", [b"SET", b"k", b"v", b"PXAT", b"%d" % (NOW_MS + 10_000)]),
        ("INCRBYFLOAT k 0.5", [b"SET", b"k", b"0.5", b"KEEPTTL"]),
        ("GETDEL held", [b"DEL", b"held"]),
    ],
)
def test_effects_depend_on_nothing(line: str, effect: list[bytes] | None) -> None:
    pair = Pair()
    pair.send("SET held 1")
    assert pair.effects_of(line) == ([] if effect is None else [effect])
    pair.check()


def test_an_expired_key_is_not_there() -> None:
    pair = Pair()
    for line in ("SET k v PX 5", "SET l v PX 5"):
        pair.send(line)
    pair.executor.begin(NOW_MS + 5)
    assert pair.send("SET k w KEEPTTL") == "+OK"
    assert pair.send("TTL k") == ":-1"
    assert pair.send("INCR l") == ":1"
    pair.check()
    assert [b"DEL", b"k"] in pair.effects


def test_expired_keys_leave_by_an_effect() -> None:
    pair = Pair()
    pair.send("SET k v PX 5")
    pair.send("SET l v")
    pair.executor.begin(NOW_MS + 5)
    assert pair.send("KEYS *") == "*1 l"
    assert pair.send("RENAMENX l k") == ":1"
    assert pair.effects[-2:] == [[b"DEL", b"k"], [b"RENAMENX", b"l", b"k"]]
    pair.check()


@pytest.mark.parametrize(
    ("first", "second", "total"),
    [
        # Taken from the real server: more digits than doubles have, ties, subnormal numbers.
        (b"0.1", b"0.2", b"0.3"),
        (b"9999999999999999999", b"0.5", b"10000000000000000000"),
        (b"18446744073709551615", b"1", b"18446744073709551616"),
        (b"1e-4940", b"0", b"0"),
        (b"0.000000000000000005", b"0", b"0"),
        (b"0.0000000000000000051", b"0", b"0.00000000000000001"),
        (b"3" + b"0" * 4_900, b"0", None),
    ],
)
def test_sums_of_long_doubles(first: bytes, second: bytes, total: bytes | None) -> None:
    got = add_long_doubles(first, second)
    assert got == total if total is not None else len(got) == len(first)


@pytest.mark.parametrize("text", [b"", b" 1", b"1e", b"nan", b"1e5000", b"1e-5000", b"1" * 5_200])
def test_no_long_doubles(text: bytes) -> None:
    with pytest.raises(CommandError, match="ERR value is not a valid float"):
        read_long_double(text)
