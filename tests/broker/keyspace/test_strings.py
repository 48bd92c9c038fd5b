"""Strings answer as redis-server 7.0.15, and what they log brings about the same.

Method: the replies of the table were taken from the real server.
"""

from __future__ import annotations

import pytest

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.values import long_double
from tests.broker.keyspace.effects import NOW_MS, Pair

REPLIES: list[tuple[str, str]] = [
    ("SET k v", "+OK"),
    ("SET k w NX", "$-1"),
    ("SET n w NX", "+OK"),
    ("SET k w XX GET", "v"),
    ("SET k w NX XX", "-ERR syntax error"),
    ("SET k w NX GET", "w"),
    ("SET none w XX", "$-1"),
    ("SET none w XX GET", "$-1"),
    ("SET k w EX 100", "+OK"),
    ("TTL k", ":100"),
    ("SET k x KEEPTTL", "+OK"),
    ("TTL k", ":100"),
    ("SET k x", "+OK"),
    ("TTL k", ":-1"),
    ("SET k x EX 10 PX 10", "-ERR syntax error"),
    ("SET k x EX 10 EX 20", "+OK"),
    ("TTL k", ":20"),
    ("SET k x EX", "-ERR syntax error"),
    ("SET k x EX 0", "-ERR invalid expire time in 'set' command"),
    ("SET k x PX abc", "-ERR value is not an integer or out of range"),
    ("SET k x EX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
    ("SET k x PXAT 9999999999999", "+OK"),
    ("PEXPIRETIME k", ":9999999999999"),
    ("SET k x EXAT 9999999999", "+OK"),
    ("EXPIRETIME k", ":9999999999"),
    ("SET k x KEEPTTL PX 1", "-ERR syntax error"),
    ("SET k x PERSIST", "-ERR syntax error"),
    ("SETNX k a", ":0"),
    ("SETNX k2 a", ":1"),
    ("SETEX k 0 a", "-ERR invalid expire time in 'setex' command"),
    ("SETEX k 100 a", "+OK"),
    ("PSETEX k 100000 b", "+OK"),
    ("PSETEX k -1 b", "-ERR invalid expire time in 'psetex' command"),
    ("GETSET k c", "b"),
    ("TTL k", ":-1"),
    ("GETSET none2 c", "$-1"),
    ("GETDEL none2", "c"),
    ("GETDEL none2", "$-1"),
    ("GETEX k EX 100", "c"),
    ("TTL k", ":100"),
    ("GETEX k PERSIST", "c"),
    ("TTL k", ":-1"),
    ("GETEX k PXAT 1", "c"),
    ("GETEX k", "$-1"),
    ("GETEX k FOO", "-ERR syntax error"),
    ("GETEX none EX 0", "$-1"),
    ("GETEX n EX 0", "-ERR invalid expire time in 'getex' command"),
    ("MSET a 1 b 2 a 3", "+OK"),
    ("MGET a b c", "*3 3 2 $-1"),
    ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
    ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
    ("MSETNX a 1 z 2", ":0"),
    ("MSETNX y 1 z 2", ":1"),
    ("APPEND a 45", ":3"),
    ("APPEND fresh 12", ":2"),
    ("OBJECT ENCODING fresh", "int"),
    ("OBJECT ENCODING a", "raw"),
    ("STRLEN a", ":3"),
    ("STRLEN none", ":0"),
    ("SETRANGE a 5 xy", ":7"),
    ("GET a", "345\\x00\\x00xy"),
    ('SETRANGE a 1 ""', ":7"),
    ('SETRANGE none 5 ""', ":0"),
    ("SETRANGE none -1 x", "-ERR offset is out of range"),
    ("SETRANGE a 536870911 xx", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
    (
        "SETRANGE a 9223372036854775807 x",
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
    ),
    ("SETRANGE new 2 x", ":3"),
    ("GETRANGE new 0 -1", "\\x00\\x00x"),
    ("OBJECT ENCODING new", "raw"),
    ("GETRANGE a 0 2", "345"),
    ("GETRANGE a -2 -1", "xy"),
    ("GETRANGE a -1 -2", ""),
    ("GETRANGE a 0 -100", "3"),
    ("GETRANGE a 100 200", ""),
    ("SUBSTR a 1 3", "45\\x00"),
    ("GETRANGE a x 1", "-ERR value is not an integer or out of range"),
    ("SET i 10", "+OK"),
    ("INCR i", ":11"),
    ("DECR i", ":10"),
    ("INCRBY i 5", ":15"),
    ("DECRBY i 20", ":-5"),
    ("DECRBY i -9223372036854775808", "-ERR decrement would overflow"),
    ("SET i 9223372036854775807", "+OK"),
    ("INCR i", "-ERR increment or decrement would overflow"),
    ('SET i " 1"', "+OK"),
    ("INCR i", "-ERR value is not an integer or out of range"),
    ("INCRBY i 1.5", "-ERR value is not an integer or out of range"),
    ("SET f 10.50", "+OK"),
    ("INCRBYFLOAT f 0.1", "10.6"),
    ("INCRBYFLOAT f 5.0e3", "5010.60000000000000009"),
    ("INCRBYFLOAT f -1e-17", "5010.60000000000000009"),
    ("INCRBYFLOAT f abc", "-ERR value is not a valid float"),
    ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity"),
    ("INCRBYFLOAT f nan", "-ERR value is not a valid float"),
    ("INCRBYFLOAT f 0x1p-1", "5011.10000000000000009"),
    ("INCRBYFLOAT f 1e5000", "-ERR value is not a valid float"),
    ("INCRBYFLOAT newf 3.0e3", "3000"),
    ("SET f 1e4900", "+OK"),
    ("INCRBYFLOAT f -1e4900", "0"),
    ("SET s1 ohmytext", "+OK"),
    ("SET s2 mynewtext", "+OK"),
]


def test_replies() -> None:
    pair = Pair()
    for line, reply in REPLIES:
        assert pair.send(line) == reply, line
        pair.check()


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("SET k v NX GET", [b"SET", b"k", b"v"]),
        ("SET k v EX 10", [b"SET", b"k", b"v", b"PXAT", b"%d" % (NOW_MS + 10_000)]),
        ("SET k v XX KEEPTTL", None),
        ("SETEX k 10 v", [b"SET", b"k", b"v", b"PXAT", b"%d" % (NOW_MS + 10_000)]),
        ("INCRBYFLOAT k 0.5", [b"SET", b"k", b"0.5", b"KEEPTTL"]),
        ("GETDEL held", [b"DEL", b"held"]),
        ("GETEX held PX 5", [b"PEXPIREAT", b"held", b"%d" % (NOW_MS + 5)]),
        ("GETEX held PXAT 5", [b"DEL", b"held"]),
        ("GETEX held PERSIST", None),
        ("SETRANGE held 0 ''", None),
        ("MSETNX held x", None),
    ],
)
def test_effects_depend_on_nothing(line: str, effect: list[bytes] | None) -> None:
    pair = Pair()
    pair.send("SET held 1")
    assert pair.effects_of(line) == ([] if effect is None else [effect])
    pair.check()


def test_replies_do_not_change_with_the_string() -> None:
    pair = Pair()
    for line in ("SET k ab", "APPEND k c", "MULTI", "GET k", "MGET k", "APPEND k d"):
        pair.send(line)
    assert pair.send("EXEC") == "*3 abc *1 abc :4"


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
    got = long_double.add(first, second)
    assert got == total if total is not None else len(got) == len(first)


@pytest.mark.parametrize("text", [b"", b" 1", b"1e", b"nan", b"1e5000", b"1e-5000", b"1" * 5_200])
def test_no_long_doubles(text: bytes) -> None:
    with pytest.raises(CommandError, match="ERR value is not a valid float"):
        long_double.read(text)
