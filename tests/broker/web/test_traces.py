"""The trace context of a request stays with its messages, whatever happens to them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.conftest import Broker

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def send(broker: Broker, topic: str, body: Any, **headers: str) -> Any:
    return broker.post(f"/v1/topics/{topic}/messages", body, **headers)


def received(broker: Broker, topic: str) -> list[Any]:
    return list(
        broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 5_000, "max": 10})["messages"]
    )


def test_retries_and_reschedules_keep_it(broker: Broker, topic: str) -> None:
    """Purpose: a delivery can always link to its send. Method: reschedule, then a retry after a
    backoff, each by a request of another trace."""
    context = {"traceparent": PARENT, "tracestate": "vendor=1"}
    sent = send(broker, topic, {"id": "a", "body": "x", "delay_ms": 3_600_000}, **context)
    path = f"/v1/topics/{topic}/messages/{sent['id']}"
    moved = broker.call("PATCH", path, {"delay_ms": 1}, headers={"traceparent": OTHER})
    assert moved.status == 200
    (first,) = received(broker, topic)
    assert first["headers"] == context
    broker.post(
        f"/v1/topics/{topic}/nack",
        {"receipts": [first["receipt"]], "delay_ms": 1},
        traceparent=OTHER,
    )
    (second,) = received(broker, topic)
    assert (second["attempts"], second["headers"]) == (2, context)


def test_a_message_s_own_headers_win(broker: Broker, topic: str) -> None:
    own = {"traceparent": OTHER, "a": "b"}
    items = [{"body": "1", "headers": own}, {"body": "2", "headers": {"a": "b"}}, {"body": "3"}]
    # A header's name has no case, and a state belongs to its own parent.
    others = {"4": {"Traceparent": OTHER}, "5": {"tracestate": "v=2"}}
    items += [{"body": body, "headers": headers} for body, headers in others.items()]
    send(broker, topic, items, traceparent=PARENT, tracestate="v=1")
    found = {each["body"]: each["headers"] for each in received(broker, topic)}
    kept = {"traceparent": PARENT, "tracestate": "v=1"}
    assert found == {"1": own, "2": {"a": "b"} | kept, "3": kept, **others}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-zz",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        PARENT.replace("00f067aa0ba902b7", "0" * 16),
        PARENT.upper(),
        "ff" + PARENT[2:],
        PARENT + "-more",
        "01" + PARENT[2:] + "more",
    ],
)
def test_what_is_no_context_is_ignored(broker: Broker, topic: str, text: str) -> None:
    send(broker, topic, {"body": "x"}, traceparent=text, tracestate="vendor=1")
    (found,) = received(broker, topic)
    assert not found.get("headers")


@pytest.mark.parametrize(
    ("parent", "more"),
    [("01" + PARENT[2:] + "-more", {}), (PARENT, {"tracestate": "v=" + "x" * 511})],
    ids=["later version with more parts", "long state, which is dropped"],
)
def test_a_parent_is_kept(broker: Broker, topic: str, parent: str, more: dict[str, str]) -> None:
    send(broker, topic, {"body": "x"}, traceparent=parent, **more)
    (found,) = received(broker, topic)
    assert found["headers"] == {"traceparent": parent}


def test_wrong_members_are_still_named(broker: Broker, topic: str) -> None:
    """The context is no reason for another error."""
    for body in ({"body": "x", "headers": 5}, [7], 7):
        plain = broker.call("POST", f"/v1/topics/{topic}/messages", body)
        traced = broker.call(
            "POST", f"/v1/topics/{topic}/messages", body, headers={"traceparent": PARENT}
        )
        assert (plain.status, plain.json) == (traced.status, traced.json)
        assert plain.status == 400
