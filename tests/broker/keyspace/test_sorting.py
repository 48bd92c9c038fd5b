"""SORT answers as redis-server 7.0.15.

Method: the replies of the table were taken from the real server, on lists and the like that come by
its dumps; what is stored is looked at in the effects.
"""

from __future__ import annotations

import pytest

from tests.broker.keyspace.effects import Pair

HELD: list[tuple[bytes, str]] = [
    (b"l", "1201020f0f00000004000301010102010a01ff0a00add0efc8419b1a49"),
    (b"w", "120102121200000004008162028161028001816302ff0a0075edd2dc2f3ddc81"),
    (b"s", "0b0e02000000030000000100020003000a00a5025ce26d6e4d1b"),
    (b"z", "1113130000000600020101010301020101010301ff0a006e3ab839c599dae9"),
    (b"h1", "100c0c00000002008166020901ff0a00aac1a99c46aa9d5e"),
    (b"h2", "100c0c00000002008166020701ff0a007574de4070fdf963"),
    (b"h3", "100c0c00000002008167020701ff0a00879bdca396a05001"),
]
REPLIES: list[tuple[str, str]] = [
    ("MSET w1 5 w2 4 w3 x w10 1", "+OK"),
    ("SORT l", "*4 1 2 3 10"),
    ("SORT l DESC", "*4 10 3 2 1"),
    ("SORT l ALPHA", "*4 1 10 2 3"),
    ("SORT l LIMIT 1 2", "*2 2 3"),
    ("SORT l LIMIT -1 100", "*4 1 2 3 10"),
    ("SORT l LIMIT 9 1", "*0"),
    ("SORT l LIMIT 0 0", "*0"),
    ("SORT w", "-ERR One or more scores can't be converted into double"),
    ("SORT w ALPHA DESC", "*4 c b a "),
    ("SORT l BY w*", "-ERR One or more scores can't be converted into double"),
    ("SORT l BY w* ALPHA", "*4 10 2 1 3"),
    ("SORT l BY h*->f", "*4 10 3 2 1"),
    (
        "SORT l BY h*->f GET # GET h*->f GET w* GET none",
        "*16 10 $-1 1 $-1 3 $-1 x $-1 2 7 4 $-1 1 9 5 $-1",
    ),
    ("SORT l BY nosort", "*4 3 1 2 10"),
    ("SORT l BY nosort DESC LIMIT 1 2", "*2 2 1"),
    ("SORT l BY nosort BY w*", "*4 3 1 2 10"),
    ("SORT z BY nosort", "*3 2 3 1"),
    ("SORT z BY nosort DESC", "*3 1 3 2"),
    ("SORT z BY nosort DESC LIMIT 0 2", "*2 1 3"),
    ("SORT z", "*3 1 2 3"),
    ("OBJECT ENCODING z", "skiplist"),
    ("SORT s BY nosort STORE d", ":3"),
    ("SORT d BY nosort", "*3 1 2 3"),
    ("SORT l GET w* STORE d", ":4"),
    ("SORT d BY nosort", "*4 5 4 x 1"),
    ("SORT none STORE d", ":0"),
    ("EXISTS d", ":0"),
    ("SORT none", "*0"),
    ("SORT w1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("SORT l STORE", "-ERR syntax error"),
    ("SORT l LIMIT 1", "-ERR syntax error"),
    ("SORT l LIMIT a 1", "-ERR value is not an integer or out of range"),
    ("SORT l NOPE", "-ERR syntax error"),
    ("SORT_RO l LIMIT 0 2", "*2 1 2"),
    ("SORT_RO l STORE d", "-ERR syntax error"),
]


def filled() -> Pair:
    pair = Pair()
    for key, payload in HELD:
        assert pair.call(b"RESTORE", key, b"0", bytes.fromhex(payload)) == b"+OK\r\n"
    return pair


def test_replies() -> None:
    pair = filled()
    for line, reply in REPLIES:
        if "STORE d" in line:
            # Effects of lists are not this family's.
            pair.leader.take_effects()
            pair.follower.apply = lambda effects: None  # type: ignore[method-assign]
        assert pair.send(line) == reply, line


def test_what_is_stored_is_logged_as_it_is() -> None:
    pair = filled()
    pair.follower.apply = lambda effects: None  # type: ignore[method-assign]
    effects = pair.effects_of("SORT l DESC LIMIT 0 2 STORE d")
    assert effects == [[b"DEL", b"d"], [b"RPUSH", b"d", b"10", b"3"]]
    assert pair.effects_of("SORT none STORE d") == [[b"DEL", b"d"]]
    assert pair.effects_of("SORT none STORE d") == []


@pytest.mark.parametrize("weight", ["1e400", "0x1p99999", "1e-400", "nan", "1x"])
def test_no_weights(weight: str) -> None:
    pair = filled()
    pair.send(f"SET w1 {weight}")
    assert pair.send("SORT l BY w*") == "-ERR One or more scores can't be converted into double"
