"""What a client counts of one stream: credit, settling frames, and frames that make no sense."""

from __future__ import annotations

from array import array
from typing import Any

import msgpack
import pytest

from delaylog.client.wire.bulk import BulkError
from delaylog.client.wire.stream_frames import BYTES, StreamState


def delivery(n: int, size: int = 10) -> bytes:
    packed: bytes = msgpack.packb(
        {
            "v": 1,
            "n": n,
            "lease": 5,
            "lease_until_ms": 1,
            "now_ms": 1,
            "refs": array("q", range(n)).tobytes(),
            "deliver_at_ms": 1,
            "attempts": 1,
            "body_size": 1,
            "bodies": b"x" * n,
            "bytes": size,
        }
    )
    return packed


def granted(state: StreamState, unyielded: int = 0) -> dict[str, int] | None:
    frame = state.grant(unyielded)
    return None if frame is None else msgpack.unpackb(frame)["credit"]


def test_credit_is_topped_up_to_the_most() -> None:
    state = StreamState(10)
    assert granted(state) == {"messages": 10, "bytes": BYTES}
    assert granted(state) is None, "all of it is on its way"
    batch = state.read(delivery(4, 400))
    assert batch is not None
    assert batch.n == 4
    assert granted(state, unyielded=4) is None, "those are not yielded yet"
    assert granted(state, unyielded=0) is None, "four of ten are not worth a frame"
    state.read(delivery(2, 200))
    assert granted(state) == {"messages": 6, "bytes": 600}


def test_one_at_a_time() -> None:
    state = StreamState(1)
    assert granted(state) == {"messages": 1, "bytes": BYTES}
    state.read(delivery(1))
    assert granted(state, unyielded=1) is None
    assert granted(state) == {"messages": 1, "bytes": 10}


def test_large_messages_use_up_the_bytes_before_the_messages() -> None:
    state = StreamState(100)
    assert granted(state) == {"messages": 100, "bytes": BYTES}
    state.read(delivery(8, BYTES))
    assert granted(state, unyielded=1) is None, "the program still has one of them"
    assert granted(state) == {"messages": 8, "bytes": BYTES}, "or the broker would wait for ever"


def test_settling_frames_are_numbered_and_their_failures_kept() -> None:
    state = StreamState(10)
    frame = msgpack.unpackb(state.settle("nack", 5, [1, 2], delay_ms=7))
    assert frame["nack"]["lease"] == 5
    assert frame["nack"]["delay_ms"] == 7
    assert state.sent == 1
    state.settle("ack", 5, [3])
    gone = array("q", [2]).tobytes()
    state.read(msgpack.packb({"frame": 1, "lease": 5, "gone": gone}))
    state.read(msgpack.packb({"settled": 2}))
    assert state.settled == 2
    assert state.gone(1).tolist() == [2]
    assert state.gone(2).tolist() == []


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        msgpack.packb([]),
        msgpack.packb({"settled": -1}),
        msgpack.packb({"settled": "x"}),
        msgpack.packb({"gone": b"1", "frame": 1}),
        msgpack.packb({"gone": b"12345678"}),
        msgpack.packb({"bodies": b"x", "n": 1, "lease": 1}),
        msgpack.packb({"bodies": b"", "n": 1 << 40, "lease": 1}),
        delivery(1)[:-3],
    ],
)
def test_frames_that_make_no_sense(frame: Any) -> None:
    with pytest.raises(BulkError):
        StreamState(10).read(frame)
