"""cjson and cmsgpack against json and msgpack."""

from __future__ import annotations

import json
import math
from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.keyspace.replies import ErrorReply
from tests.effort import tries

# Doubles that %.14g writes in full, so that encoding loses nothing.
NUMBERS = st.integers(-(10**13), 10**13) | st.integers(-(10**6), 10**6).map(lambda n: n / 64)
TEXTS = st.text(max_size=8)
VALUES = st.recursive(
    st.booleans() | NUMBERS | TEXTS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4)
        | st.dictionaries(TEXTS.map(lambda text: "k" + text), inner, min_size=1, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=tries(120), deadline=None)
@given(value=VALUES)
def test_json_comes_back_the_same(shared: Any, value: Any) -> None:
    source = "return cjson.encode(cjson.decode(ARGV[1]))"
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        reply = shared.eval(source, args=[text.encode()])
        assert isinstance(reply, bytes), reply
        assert json.loads(reply) == value


@settings(max_examples=tries(200), deadline=None)
@given(text=st.text('[]{},:"\\ue019.-+ntf \n', max_size=12))
def test_json_accepts_what_json_accepts(shared: Any, text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        reply = shared.eval("cjson.decode(ARGV[1])", args=[text.encode()])
        assert reply is None or isinstance(reply, ErrorReply)
        return
    except RecursionError:
        return
    source = "cjson.decode(ARGV[1]) return 1"
    reply = shared.eval(source, args=[text.encode()])
    # json takes half of a surrogate pair, cjson does not.
    assert reply == 1 or b"unicode" in reply.text


@settings(max_examples=tries(150), deadline=None)
@given(value=VALUES)
def test_msgpack_comes_back_the_same(shared: Any, value: Any) -> None:
    packed = msgpack.packb(value, use_bin_type=False)
    reply = shared.eval("return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))", args=[packed])
    assert isinstance(reply, bytes), reply
    assert msgpack.unpackb(reply) == value


@settings(max_examples=tries(200), deadline=None)
@given(data=st.binary(max_size=20))
def test_unpacking_anything_ends(shared: Any, data: bytes) -> None:
    for source in (
        "return {cmsgpack.unpack(ARGV[1])}",
        "return {cmsgpack.unpack_one(ARGV[1])}",
        "return cjson.decode(ARGV[1])",
    ):
        reply = shared.eval(source, args=[data])
        if isinstance(reply, ErrorReply):
            assert b"scripts:" not in reply.text
            assert b"Error" not in reply.text


@settings(max_examples=tries(150), deadline=None)
@given(value=st.floats(allow_nan=False) | st.integers(-(2**53), 2**53).map(float))
def test_numbers_are_packed_exactly(shared: Any, value: float) -> None:
    text = repr(value).encode()
    source = "return cmsgpack.pack(tonumber(ARGV[1]))"
    if not math.isinf(value):
        packed = shared.eval(source, args=[text])
        assert msgpack.unpackb(packed) == value
