"""The metrics of a program that sends and handles, read from a registry."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from delaylog.client import Client, LeasedMessage, Retry
from delaylog.client.errors import ClientError
from delaylog.client.instruments.prometheus import PrometheusHooks
from tests.client.rows import received
from tests.client.workers.live import Kind, Live, Works


def test_sends_and_handlers_are_counted(live: Live, kind: Kind) -> None:
    registry = CollectorRegistry()
    works = Works(kind, live, hooks=[PrometheusHooks(registry)])

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        if message.text == "bad" and message.attempts == 1:
            raise Retry(delay=timedelta(0))

    works.in_threads.send_many("t", ["good"] * 9 + ["bad"])
    with works:
        live.await_counts(acked=10)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"delaylog_client_{name}", {"topic": "t", **labels})

    assert value("sent_total") == 10
    assert value("send_seconds_count") == 1
    assert value("received_total") == 11
    assert value("handler_seconds_count", outcome="returned") == 10
    assert value("handler_seconds_count", outcome="raised") == 1
    assert value("settled_total", verb="ack") == 10
    assert value("settled_total", verb="nack") == 1
    assert value("leases_lost_total") is None


def test_failures_and_lost_leases_are_counted() -> None:
    registry = CollectorRegistry()
    hooks = PrometheusHooks(registry)
    client = Client("http://127.0.0.1:9", timeout=timedelta(seconds=1), hooks=[hooks])
    with client, pytest.raises(ClientError):
        client.send("t", "x")
    hooks.on_lease_lost(received([1])[0])

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"delaylog_client_{name}", {"topic": "t"})

    assert value("send_failures_total") == 1
    assert (value("send_retries_total") or 0) >= 1
    assert value("leases_lost_total") == 1
