"""Ids of requests, and the log of slow ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.broker.conftest import Broker
from tests.waiting import await_that


def test_every_answer_has_an_id(broker: Broker, topic: str) -> None:
    """Purpose: an answer can be found in logs. Method: the fast lane, other calls, pages, files,
    refusals, also before the request is read, and what is no HTTP; an own id comes back, one that
    does not fit is replaced."""
    seen = set()
    for method, path, body, status in (
        ("POST", f"/v1/topics/{topic}/messages", {"body": "x"}, 200),
        ("GET", f"/v1/topics/{topic}", None, 200),
        ("PUT", f"/v1/topics/{topic}", {}, 200),
        ("GET", "/healthz", None, 200),
        ("GET", "/metrics", None, 200),
        ("GET", "/ui/", None, 200),
        ("GET", "/ui/none.js", None, 404),
        ("GET", "/v1/nowhere", None, 404),
        ("POST", f"/v1/topics/{topic}/messages", 5, 400),
    ):
        answer = broker.call(method, path, body)
        assert answer.status == status
        seen.add(answer.headers["X-Request-Id"])
        mine = broker.call(method, path, body, headers={"X-Request-Id": "mine-1"})
        assert mine.headers["X-Request-Id"] == "mine-1"
        unfit = broker.call(method, path, body, headers={"X-Request-Id": "a b"})
        assert unfit.headers["X-Request-Id"] != "a b"
    assert len(seen) == 9
    assert broker.call("GET", "/", headers={"Host": "elsewhere"}).headers["X-Request-Id"]
    refused = broker.raw(b"this is not HTTP\r\n\r\n")
    assert b" 400 Bad Request" in refused
    assert b"X-Request-Id: " in refused


def slow_lines(broker: Broker) -> list[dict[str, Any]]:
    return [line for line in broker.logs() if line["logger"] == "delaylog.slow"]


def test_slow_requests_are_logged(start_broker: Callable[..., Broker]) -> None:
    """Purpose: the log names them. Method: a threshold of 1 ms, and a send of some megabytes of
    JSON."""
    broker = start_broker(constants={"delaylog.broker.host.watch.timings.SLOW_SECONDS": 0.001})
    many = [{"body": "x" * 400, "delay_ms": 3_600_000, "headers": {"a": "b"}}] * 10_000
    broker.call("POST", "/v1/topics/t/messages", many, headers={"X-Request-Id": "big"})
    lines = await_that(lambda: slow_lines(broker))
    assert lines[0]["request_id"] == "big"
    assert lines[0]["message"].startswith("slow request: send took ")
    broker.await_metric('delaylog_slow_requests_total{face="http"}', 1)


def test_a_wait_that_was_asked_for_is_not_slow(start_broker: Callable[..., Broker]) -> None:
    """It lasts longer than the threshold of 2 s."""
    broker = start_broker(constants={"delaylog.broker.host.watch.timings.SLOW_SECONDS": 2.0})
    broker.post("/v1/topics/t/receive", {"wait_ms": 2_100})
    assert slow_lines(broker) == []
