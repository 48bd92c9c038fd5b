"""cjson and cmsgpack against json and msgpack, struct against struct, bit against Python's ints."""

from __future__ import annotations

import json
import math
import struct
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
        "return {struct.unpack(ARGV[1], ARGV[1])}",
        "return {struct.pack(ARGV[1], 1, 2, 3)}",
        "return struct.size(ARGV[1])",
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
        packed = shared.eval("return struct.pack('>d', tonumber(ARGV[1]))", args=[text])
        assert struct.unpack(">d", packed)[0] == value


@settings(max_examples=tries(150), deadline=None)
@given(
    value=st.integers(-(2**53), 2**53),
    size=st.integers(1, 8),
    order=st.sampled_from("<>"),
    signed=st.booleans(),
)
def test_struct_integers(shared: Any, value: int, size: int, order: str, signed: bool) -> None:
    layout = f"{order}{'i' if signed else 'I'}{size}"
    source = (
        f"local s = struct.pack('{layout}', tonumber(ARGV[1])) "
        f"return {{s, struct.unpack('{layout}', s)}}"
    )
    packed, unpacked, after = shared.eval(source, args=[b"%d" % value])
    low = value % 256**size
    assert packed == low.to_bytes(size, "little" if order == "<" else "big")
    expected = low - 256**size if signed and low >= 256**size // 2 else low
    # A double cannot hold all of eight bytes, and a reply not all of a double.
    if abs(expected) < 2**53:
        assert unpacked == expected
    assert after == size + 1


@settings(max_examples=tries(150), deadline=None)
@given(a=st.integers(-(2**40), 2**40), b=st.integers(-(2**40), 2**40), n=st.integers(-40, 40))
def test_bits(shared: Any, a: int, b: int, n: int) -> None:
    def signed(word: int) -> int:
        word &= 0xFFFFFFFF
        return word - 2**32 if word >= 2**31 else word

    source = (
        "local a, b, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) return {"
        "bit.tobit(a), bit.bnot(a), bit.band(a, b), bit.bor(a, b), bit.bxor(a, b), "
        "bit.lshift(a, n), bit.rshift(a, n), bit.arshift(a, n), bit.rol(a, n), bit.ror(a, n), "
        "bit.bswap(a), bit.tohex(a)}"
    )
    word, by = a & 0xFFFFFFFF, n & 31
    assert shared.eval(source, args=[b"%d" % a, b"%d" % b, b"%d" % n]) == [
        signed(a),
        signed(~a),
        signed(a & b),
        signed(a | b),
        signed(a ^ b),
        signed(word << by),
        signed(word >> by),
        signed(word) >> by,
        signed(word << by | word >> (32 - by)),
        signed(word >> by | word << (32 - by)),
        signed(int.from_bytes(word.to_bytes(4, "little"), "big")),
        b"%08x" % word,
    ]
