"""Ids of requests, and the log of slow ones."""

from __future__ import annotations

from collections.abc import Callable

from tests.broker.conftest import Broker


def test_every_answer_has_an_id(broker: Broker, topic: str) -> None:
    """Purpose: an answer can be found in logs. Method: the fast lane, other calls, pages and
    refusals; one's own id comes back, one that is unfit does not."""
    seen = set()
    for method, path, body, status in (
        ("POST", f"/v1/topics/{topic}/messages", {"body": "x"}, 200),
        ("GET", f"/v1/topics/{topic}", None, 200),
        ("GET", "/healthz", None, 200),
        ("GET", "/metrics", None, 200),
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
    assert len(seen) == 6


def test_slow_requests_are_logged(start_broker: Callable[..., Broker]) -> None:
    """Purpose: the log names them. Method: a threshold of 20 ms; a receive that waits for 100 ms as
    it was asked to is not slow, a read of some megabytes of JSON is."""
    broker = start_broker(constants={"delaylog.broker.host.watch.timings.SLOW_SECONDS": 0.02})
    broker.post("/v1/topics/t/receive", {"wait_ms": 100})
    assert not [line for line in broker.logs() if line["logger"] == "delaylog.slow"]
    many = [{"body": "x" * 400, "delay_ms": 3_600_000, "headers": {"a": "b"}}] * 10_000
    for _ in range(20):
        broker.call("POST", "/v1/topics/t/messages", many, headers={"X-Request-Id": "big"})
        lines = [line for line in broker.logs() if line["logger"] == "delaylog.slow"]
        if lines:
            break
    assert lines[0]["request_id"] == "big"
    assert lines[0]["message"].startswith("slow request: send took ")
    broker.await_metric('delaylog_slow_requests_total{face="http"}', 1)
