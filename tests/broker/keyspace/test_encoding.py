"""Replies as bytes: a table of each kind in both protocols.

The differential tests (`tests/redis/differential`) compare them with what redis-server writes.
"""

from __future__ import annotations

import math
from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.keyspace.replies import (
    NO_ARRAY,
    OK,
    Double,
    ErrorReply,
    Map,
    Members,
    Push,
    Reply,
    Status,
    Verbatim,
    encode,
    encode_into,
)


class SomeBytes(bytes):
    """Of a subclass that encoding does not know."""


LONG = b"x" * 100_000

# Reply, RESP2, RESP3 (None: the same).
REPLIES: list[tuple[Reply, bytes, bytes | None]] = [
    (b"", b"$0\r\n\r\n", None),
    (b"a\r\nb\0", b"$5\r\na\r\nb\0\r\n", None),
    (b"x" * 1023, b"$1023\r\n" + b"x" * 1023 + b"\r\n", None),
    (b"x" * 1024, b"$1024\r\n" + b"x" * 1024 + b"\r\n", None),
    (LONG, b"$100000\r\n" + LONG + b"\r\n", None),
    (bytearray(b"ab"), b"$2\r\nab\r\n", None),
    (SomeBytes(b"ab"), b"$2\r\nab\r\n", None),
    (IntEnum("Some", "ONE").ONE, b":1\r\n", None),  # type: ignore[attr-defined]
    (0, b":0\r\n", None),
    (-1, b":-1\r\n", None),
    (1023, b":1023\r\n", None),
    (1024, b":1024\r\n", None),
    (-(1 << 63), b":-9223372036854775808\r\n", None),
    (None, b"$-1\r\n", b"_\r\n"),
    (NO_ARRAY, b"*-1\r\n", b"_\r\n"),
    (OK, b"+OK\r\n", None),
    (Status(b""), b"+\r\n", None),
    (Status(b"a\r\nb"), b"+a  b\r\n", None),
    (ErrorReply(b"ERR no\r\n:1\r\n"), b"-ERR no  :1\r\n", None),
    (ErrorReply(b"WRONGTYPE x"), b"-WRONGTYPE x\r\n", None),
    (Double(3), b"$1\r\n3\r\n", b",3\r\n"),
    (Double(-0.0), b"$2\r\n-0\r\n", b",-0\r\n"),
    (Double(0.1), b"$19\r\n0.10000000000000001\r\n", b",0.10000000000000001\r\n"),
    (Double(1e17), b"$5\r\n1e+17\r\n", b",1e+17\r\n"),
    (Double(5e-324), b"$23\r\n4.9406564584124654e-324\r\n", b",4.9406564584124654e-324\r\n"),
    (Double(1e-7), b"$22\r\n9.9999999999999995e-08\r\n", b",9.9999999999999995e-08\r\n"),
    (Double(math.inf), b"$3\r\ninf\r\n", b",inf\r\n"),
    (Double(-math.inf), b"$4\r\n-inf\r\n", b",-inf\r\n"),
    ([], b"*0\r\n", None),
    ((b"a", 1), b"*2\r\n$1\r\na\r\n:1\r\n", None),
    (range(2), b"*2\r\n:0\r\n:1\r\n", None),
    ([[[]]], b"*1\r\n*1\r\n*0\r\n", None),
    (
        [None, [NO_ARRAY, 1]],
        b"*2\r\n$-1\r\n*2\r\n*-1\r\n:1\r\n",
        b"*2\r\n_\r\n*2\r\n_\r\n:1\r\n",
    ),
    ([b"a"] * 2000, b"*2000\r\n" + b"$1\r\na\r\n" * 2000, None),
    (Map([b"a", 1]), b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
    (Map([]), b"*0\r\n", b"%0\r\n"),
    (Members([b"a", b"b"]), b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"~2\r\n$1\r\na\r\n$1\r\nb\r\n"),
    (Push([b"message", None]), b"*2\r\n$7\r\nmessage\r\n$-1\r\n", b">2\r\n$7\r\nmessage\r\n_\r\n"),
    (Verbatim(b"hi\r\n"), b"$4\r\nhi\r\n\r\n", b"=8\r\ntxt:hi\r\n\r\n"),
]


@pytest.mark.parametrize(("reply", "resp2", "resp3"), REPLIES)
def test_replies(reply: Reply, resp2: bytes, resp3: bytes | None) -> None:
    for resp, expected in ((2, resp2), (3, resp2 if resp3 is None else resp3)):
        assert encode(reply, resp) == expected
        out = [b"before"]
        encode_into(out, reply, resp)
        assert b"".join(out) == b"before" + expected
        # And inside of others.
        assert encode([b"a", reply, 1], resp) == b"*3\r\n$1\r\na\r\n" + expected + b":1\r\n"
        assert type(encode(reply, resp)) is bytes


@pytest.mark.parametrize("reply", ["text", 1.5, {}, object()])
def test_what_is_no_reply_is_refused(reply: object) -> None:
    with pytest.raises(TypeError, match=type(reply).__name__):
        encode(reply, 2)  # type: ignore[arg-type]


def test_a_large_value_is_not_copied() -> None:
    for reply in (LONG, [LONG], Verbatim(LONG)):
        out: list[bytes] = []
        encode_into(out, reply, 3)
        assert any(piece is LONG for piece in out)


REPLY: st.SearchStrategy[Reply] = st.recursive(
    st.none()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.binary(max_size=40)
    | st.builds(Double, st.floats(allow_nan=False)),
    lambda inner: st.lists(inner, max_size=5) | st.lists(inner, max_size=5).map(Members),
)


@given(reply=REPLY, resp=st.sampled_from([2, 3]))
def test_what_is_nested_is_written_as_it_is_alone(reply: Reply, resp: int) -> None:
    alone = encode(reply, resp)
    assert encode([reply, reply], resp) == b"*2\r\n" + alone + alone
    out: list[bytes] = []
    encode_into(out, reply, resp)
    assert b"".join(out) == alone
