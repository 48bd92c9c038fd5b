"""Where a request ends that aiohttp parses: aiohttp's own parser is the reference."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import HttpRequestParser
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.web.fast_lane import Head
from delaylog.broker.web.request_end import HEAD_BYTES_MAX, RequestEnd
from tests.effort import tries

PLAIN = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
HEADS = {PLAIN: Head(len(PLAIN), len(PLAIN) + 4), CHUNKED: Head(len(CHUNKED), 0, chunked=True)}
BODIES = {
    PLAIN: [b"body", b"\r\n\r\n"],
    CHUNKED: [
        b"0\r\n\r\n",
        b"4\r\nbody\r\n0\r\n\r\n",
        b"5;a=b\r\n0\r\n\r\n\r\n0\r\n\r\n",
        b"00A\r\n0123456789\r\n1\r\nx\r\n0;last\r\nTrailer: x\r\nOther: 0\r\n\r\n",
    ],
}


def head_of(data: bytes) -> Head | None:
    return next((head for raw, head in HEADS.items() if data.startswith(raw)), None)


@settings(max_examples=tries(200), deadline=None)
@given(data=st.data(), cuts=st.lists(st.integers(0, 200), max_size=8), knows=st.booleans())
def test_the_end_is_found_however_the_bytes_are_cut(
    data: st.DataObject, cuts: list[int], knows: bool
) -> None:
    head = data.draw(st.sampled_from(list(HEADS)))
    whole = head + data.draw(st.sampled_from(BODIES[head]))
    before = b"" if knows else data.draw(st.sampled_from([b"", b"\r\n", b"\r\n\r\n"]))
    wire = before + whole + b"GET / HTTP/1.1"
    ends = sorted({len(wire), *(cut for cut in cuts if cut < len(wire))})
    if knows:
        ends = [end for end in ends if end >= len(head)]
    end = RequestEnd(head_of, HEADS[head] if knows else None)
    start = taken = 0
    for stop in ends:
        if end.is_reached:
            break
        taken += end.take(wire[start:stop])
        assert end.is_reached is (stop >= len(before + whole))
        start = stop
    assert taken == len(before + whole)
    assert end.opening.startswith(head)


@pytest.mark.parametrize("body", BODIES[CHUNKED])
def test_aiohttp_finds_the_same_end(body: bytes) -> None:
    async def parsed() -> list[bool]:
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(BaseProtocol(loop), loop, 2**16)
        ((_, payload),) = parser.feed_data(CHUNKED + body[:-1])[0]
        before = payload.is_eof()
        parser.feed_data(body[-1:])
        return [before, payload.is_eof()]

    assert asyncio.run(parsed()) == [False, True]


@pytest.mark.parametrize("body", [b"x\r\n", b"1\n", b"-1\r\n", b" 1\r\n", b"0_1\r\n", b"\r\n"])
def test_malformed_chunks_have_no_end(body: bytes) -> None:
    end = RequestEnd(head_of, None)
    wire = CHUNKED + body + b"0\r\n\r\n"
    assert end.take(wire) == len(wire)
    assert not end.is_reached


def test_a_head_without_end_is_not_kept() -> None:
    end = RequestEnd(head_of, None)
    for _ in range(40):
        assert end.take(bytes(8_192)) == 8_192
    assert len(end.opening) <= HEAD_BYTES_MAX + 8_192
    assert not end.is_reached
