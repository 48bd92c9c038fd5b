"""Sends with Arrow bodies over HTTP: what is answered, repeated, and refused."""

from __future__ import annotations

import datetime
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from delaylog.broker.calls.forms.arrow_stream import ARROW
from tests.broker.calls.forms.arrow_streams import HEADERS, UTC_US, one, stream
from tests.waiting import await_that

NONE = dict.fromkeys(("created", "kept", "replaced", "rejected"), 0)


def post(broker: Any, topic: str, raw: bytes, **headers: str) -> Any:
    kind = {"Content-Type": ARROW, **{k.replace("_", "-"): v for k, v in headers.items()}}
    return broker.call("POST", f"/v1/topics/{topic}/messages", raw, kind)


def test_sent_and_received(broker: Any, topic: str) -> None:
    """What was sent as Arrow comes out as what it said."""
    due = datetime.datetime.now(datetime.UTC)
    raw = stream(
        one(
            value=pa.array([b"first", b"\xff"]),
            deliver_at=pa.array([due, due + datetime.timedelta(milliseconds=1)], UTC_US),
            id=pa.array(["a", None]),
            key=pa.array([None, "k"]),
            tags=pa.array([["t", "u"], None]),
            headers=pa.array([None, [{"key": "h", "value": b"v"}]], HEADERS),
        ),
        compression="zstd",
    )
    answer = post(broker, topic, raw)
    assert answer.json == {"n": 2} | NONE | {"created": 2}
    await_that(lambda: broker.counts(topic)["ready"] == 2)
    got = broker.post(f"/v1/topics/{topic}/receive", {"max": 10, "wait_ms": 5_000})["messages"]
    assert [each.get("body", each.get("body_base64")) for each in got] == ["first", "/w=="]
    assert got[0]["id"] == "a"
    assert [each["tags"] for each in got] == [["t", "u"], []]
    assert [each["key"] for each in got] == [None, "k"]
    assert [each["headers"] for each in got] == [{}, {"h": "v"}]


def test_results_that_differ(broker: Any, topic: str) -> None:
    """Row by row only then."""
    first = stream(one(id=pa.array(["a", "b"]), delay_ms=pa.array([60_000, 60_000])))
    second = stream(one(id=pa.array(["b", "c"]), delay_ms=pa.array([60_000, 60_000])))
    assert "results" not in post(broker, topic, first).json
    mixed = {"created": 1, "kept": 1, "results": ["kept", "created"]}
    assert post(broker, topic, second).json == {"n": 2} | NONE | mixed
    assert post(broker, topic, second).json == {"n": 2} | NONE | {"kept": 2}


def test_repeated_by_an_idempotency_key(broker: Any, topic: str) -> None:
    """A retry after a lost answer adds nothing; the bulk answer is given to who asks."""
    raw = stream(one(delay_ms=pa.array([60_000] * 3)))
    bulk = {"Accept": "application/vnd.delaylog.batch", "Idempotency_Key": "k"}
    answers = [msgpack.unpackb(post(broker, topic, raw, **bulk).body) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["n"] == 3
    assert broker.counts(topic)["waiting"] == 3


def test_a_refused_body_makes_no_topic(broker: Any, topic: str, assert_problem: Any) -> None:
    """Nothing is half done."""
    raw = stream(one(value=pa.array([b"x", None], pa.binary())))
    assert_problem(post(broker, topic, raw), 400, "bad_request", "value", 1)
    assert_problem(post(broker, topic, raw[:200]), 400, "bad_request")
    assert broker.counts(topic) is None


def test_a_large_body(broker: Any, topic: str) -> None:
    """One that is converted apart from the loop."""
    n = 100_000
    raw = stream(
        one(
            value=pa.array([b"x" * 100] * n),
            delay_ms=pa.array(np.full(n, 3_600_000)),
            id=pa.array([f"id-{at}" for at in range(n)]),
        )
    )
    assert post(broker, topic, raw).json["created"] == n
    assert broker.counts(topic)["waiting"] == n
