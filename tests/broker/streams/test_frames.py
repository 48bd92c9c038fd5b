"""Frames of streams, decoded and encoded without a connection."""

from __future__ import annotations

import msgpack
import numpy as np
import orjson
import pytest

from delaylog.broker.calls.answers import Problem, problem_of
from delaylog.broker.calls.turn.writes import Settling
from delaylog.broker.engine.limits import Limits
from delaylog.broker.streams.frames import Grant, Settle, Stop, decode, end_event, frame

LIMITS = Limits()
RECEIPT = "0000010000000002" + "0000000000000007"


def test_credit_and_stop() -> None:
    assert decode('{"credit": {"messages": 3}}', LIMITS) == Grant(3, 0)
    assert decode(msgpack.packb({"credit": {"bytes": 5}}), LIMITS) == Grant(0, 5)
    assert decode('{"stop": {}}', LIMITS) == Stop()


def test_settling_by_receipts() -> None:
    found = decode(
        orjson.dumps({"nack": {"receipts": [RECEIPT], "delay_ms": 5, "reason": "é"}}).decode(),
        LIMITS,
    )
    named = [(0x10000000002, 7)]
    assert found == Settle(Settling("nack", delay_ms=5, reason="é"), [RECEIPT], named)


def test_settling_by_columns() -> None:
    refs = np.array([7, 9], "<i8").tobytes()
    found = decode(msgpack.packb({"extend": {"lease": 3, "refs": refs, "lease_ms": 0}}), LIMITS)
    assert isinstance(found, Settle)
    assert found.wanted == Settling("extend", lease_ms=0)
    assert found.columns is not None
    assert found.columns.lease == 3
    assert found.columns.origins is not None
    assert found.columns.origins.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('{"ack": {}}', "ack has no receipts"),
        ('{"ack": []}', "ack must be an object"),
        ('{"dig": {}}', "unknown frame 'dig'; known are credit, stop, ack"),
        ("{}", "a frame is an object with one member of credit, stop, ack"),
        ('{"credit": {"lease": 1}}', "unknown member 'lease'"),
        (msgpack.packb({1: 2}), "the frame is not msgpack"),
        ("{", "the frame is not JSON"),
    ],
)
def test_refusals_name_what_is_wrong(raw: str | bytes, text: str) -> None:
    with pytest.raises(Exception, match=text) as caught:
        decode(raw, LIMITS)
    assert problem_of(caught.value) is not None


def test_frames_of_the_broker() -> None:
    assert frame({"settled": 3}, "json") == b'{"settled":3}'
    assert msgpack.unpackb(frame({"settled": 3}, "bulk")) == {"settled": 3}
    event = end_event(Problem("unknown", "a\nb"))
    assert event.startswith(b"event: end\ndata: {")
    assert event.count(b"\n") == 3, "one line of data"
