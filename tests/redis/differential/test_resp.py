"""The strict reader, and the rules for what Redis leaves open, as tables."""

from __future__ import annotations

import pytest

from tests.redis.differential.compare import same
from tests.redis.differential.resp import Incomplete, Malformed, parse, read, request, split
from tests.redis.differential.transcript import rendered, unrendered, words

REPLIES = [
    b"+OK\r\n",
    b"-ERR x, y]\r\n",
    b"-ERR \r\n",
    b":-5\r\n",
    b"$0\r\n\r\n",
    b'$5\r\na"\r\n\xff\r\n',
    b"$-1\r\n",
    b"*-1\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b",-inf\r\n",
    b",1e+20\r\n",
    b"(-123456789012345678901234567890\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"*0\r\n",
    b"*3\r\n:1\r\n*1\r\n$1\r\na\r\n+a, b\r\n",
    b"%1\r\n+k\r\n~2\r\n:1\r\n_\r\n",
    b">2\r\n$7\r\nmessage\r\n$1\r\nx\r\n",
]


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_is_read_at_every_cut(reply: bytes) -> None:
    assert read(reply + b"rest")[1] == len(reply)
    for cut in range(1, len(reply)):
        with pytest.raises(Incomplete):
            read(reply[:cut])
    assert split(reply * 2 + reply[:1]) == ([reply, reply], reply[:1])


@pytest.mark.parametrize("reply", REPLIES)
def test_what_is_written_down_loses_nothing(reply: bytes) -> None:
    assert unrendered(rendered(parse(reply))) == parse(reply)


@pytest.mark.parametrize(
    "reply",
    [
        *(b"OK\r\n", b":1.5\r\n", b":01\r\n", b":+1\r\n", b":\r\n", b"$2\r\nabc\r\n", b"$-2\r\n"),
        *(b"$01\r\na\r\n", b"#x\r\n", b",1.\r\n", b",Infinity\r\n", b"_x\r\n", b"+a\rb\r\n"),
        *(b"+a\nb\r\n", b"%-1\r\n", b"~-1\r\n", b"*1\r\nx\r\n"),
    ],
)
def test_what_is_not_resp_is_refused(reply: bytes) -> None:
    with pytest.raises(Malformed):
        read(reply)


def test_a_line_of_redis_cli() -> None:
    assert words(rb'SET a "x y" "\x00\r\n\"" "" b"c') == (
        *(b"SET", b"a", b"x y", b'\x00\r\n"', b"", b'b"c'),
    )
    assert request([b"GET", b""]) == b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"


AB, BA = b"*2\r\n+a\r\n+b\r\n", b"*2\r\n+b\r\n+a\r\n"
ABBA = b"*4\r\n+a\r\n+b\r\n+b\r\n+a\r\n"


@pytest.mark.parametrize(
    ("command", "ours", "theirs", "fine"),
    [
        ("SMEMBERS s", AB, BA, True),
        ("SMEMBERS s", AB, b"*2\r\n+a\r\n+a\r\n", False),
        ("SMEMBERS s", AB, b"~2\r\n+a\r\n+b\r\n", False),
        ("LRANGE s 0 -1", AB, BA, False),
        ("HGETALL h", ABBA, b"*4\r\n+b\r\n+a\r\n+a\r\n+b\r\n", True),
        ("HGETALL h", ABBA, b"*4\r\n+a\r\n+a\r\n+b\r\n+b\r\n", False),
        ("HSCAN h 0", b"*2\r\n$1\r\n0\r\n" + ABBA, b"*2\r\n$1\r\n0\r\n" + ABBA, True),
        ("HSCAN h 0", b"*2\r\n$1\r\n0\r\n" + AB, b"*2\r\n$1\r\n0\r\n" + BA, False),
        ("TTL a", b":100\r\n", b":99\r\n", True),
        ("TTL a", b":100\r\n", b":90\r\n", False),
        ("TTL a", b":-1\r\n", b":-2\r\n", False),
        ("TTL a", b":0\r\n", b":-2\r\n", False),
        ("LLEN a", b":100\r\n", b":99\r\n", False),
        ("SMEMBERS s", b"-ERR a\r\n", b"-ERR b\r\n", False),
        ('EVAL "return redis.call(unpack(ARGV))" 0 SMEMBERS s', AB, BA, True),
        ('EVAL "return redis.call(unpack(ARGV))" 0 LRANGE s 0 -1', AB, BA, False),
        ("EVAL x 1 SMEMBERS s", AB, BA, False),
    ],
)
def test_only_what_is_open_is_forgiven(
    command: str, ours: bytes, theirs: bytes, fine: bool
) -> None:
    assert same(words(command.encode()), ours, theirs) is fine
