"""Spans of handlers, by the SDK of OpenTelemetry."""

from __future__ import annotations

import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from delaylog.client import LeasedMessage, Retry
from delaylog.client.instruments.opentelemetry import OpenTelemetryHooks
from tests.client.workers.live import Kind, Live, Works
from tests.waiting import await_that


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def test_a_trace_goes_on_in_the_handler(
    live: Live, kind: Kind, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    """The first attempt asks for another one, which is no error; the second one fails."""
    works = Works(kind, live, hooks=[OpenTelemetryHooks(provider)])
    inside: list[int] = []

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        inside.append(trace.get_current_span().get_span_context().trace_id)
        if message.attempts == 1:
            raise Retry(delay_ms=0)
        raise RuntimeError("boom")

    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("order"):
        works.in_threads.send("t", "x", id="m", max_retry=1)
    with works:
        live.await_counts(dead=1)
        await_that(lambda: len(exporter.get_finished_spans()) == 4)
    create, order, first, second = exporter.get_finished_spans()
    assert (create.name, create.kind) == ("create t", SpanKind.PRODUCER)
    assert create.context is not None
    assert order.context is not None
    assert create.parent is not None
    assert create.parent.span_id == order.context.span_id
    for number, span in enumerate((first, second), 1):
        assert (span.name, span.kind) == ("process t", SpanKind.CONSUMER)
        assert span.parent is not None
        assert span.parent.span_id == create.context.span_id
        assert not span.links
        assert span.attributes is not None
        attributes = dict(span.attributes)
        assert attributes.pop("delaylog.deliver_at_ms")
        assert attributes.pop("error.type", None) == (None, "RuntimeError")[number - 1]
        assert attributes == {
            "messaging.system": "delaylog",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "t",
            "messaging.message.id": "m",
            "messaging.message.body.size": 1,
            "delaylog.attempts": number,
        }
    assert first.status.status_code is StatusCode.UNSET
    assert second.status.status_code is StatusCode.ERROR
    assert second.status.description == "RuntimeError: boom"
    assert [event.name for event in second.events] == ["exception"]
    assert inside == [order.context.trace_id] * 2
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_message_without_a_trace_begins_one(
    live: Live, kind: Kind, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    works = Works(kind, live, hooks=[OpenTelemetryHooks(provider)])
    found: list[dict[str, str]] = []

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        found.append(dict(message.headers))

    works.in_threads.send("t", "x")
    with works:
        live.await_counts(acked=1)
        await_that(lambda: len(exporter.get_finished_spans()) == 1)
    assert found == [{}]
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    assert not span.links


@pytest.mark.parametrize("parent_if_under_s", [0.0, 0.2, 5.0])
def test_a_late_delivery_is_a_trace_that_links_to_its_send(
    live: Live,
    kind: Kind,
    provider: TracerProvider,
    exporter: InMemorySpanExporter,
    parent_if_under_s: float,
) -> None:
    """0.3 s until a worker takes a message that was due at once is short for the last hook only.
    The link stays the same at a retry.
    """
    hooks = OpenTelemetryHooks(provider, parent_if_under_s=parent_if_under_s)
    works = Works(kind, live, hooks=[hooks])

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        if message.attempts == 1:
            raise Retry(delay_ms=0)

    with provider.get_tracer("test").start_as_current_span("order"):
        works.in_threads.send("t", "x")
    time.sleep(0.3)
    with works:
        live.await_counts(acked=1)
        await_that(lambda: len(exporter.get_finished_spans()) == 4)
    create, order, *deliveries = exporter.get_finished_spans()
    assert create.context is not None
    assert order.context is not None
    for span in deliveries:
        assert span.context is not None
        if parent_if_under_s == 5.0:
            assert span.context.trace_id == order.context.trace_id
            assert not span.links
        else:
            assert span.parent is None
            assert span.context.trace_id != order.context.trace_id
            (link,) = span.links
            assert link.context.span_id == create.context.span_id
            assert link.context.trace_id == order.context.trace_id


def test_metrics_follow_the_conventions(live: Live, kind: Kind) -> None:
    """Names, units and attributes, of sends, receives, settles and handlers."""
    reader = InMemoryMetricReader()
    works = Works(kind, live, hooks=[OpenTelemetryHooks(meter_provider=MeterProvider([reader]))])

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        if message.attempts == 1:
            raise ValueError("boom")

    works.in_threads.send("t", "x", max_retry=3, backoff={"first_ms": 1})
    with works:
        live.await_counts(acked=1)
    data = reader.get_metrics_data()
    assert data is not None
    points: dict[tuple[str, ...], float] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            words = dict(point.attributes or {})
            assert words.pop("messaging.system") == "delaylog"
            assert words.pop("messaging.destination.name") == "t"
            name = str(words.pop("messaging.operation.name"))
            kind_of = str(words.pop("messaging.operation.type"))
            error = str(words.pop("error.type", ""))
            assert not words
            key = (metric.name, metric.unit or "", name, kind_of, error)
            points[key] = getattr(point, "count", None) or getattr(point, "value", 0)
    assert points.pop(("messaging.client.sent.messages", "{message}", "send", "send", "")) == 1
    consumed = ("messaging.client.consumed.messages", "{message}", "receive", "receive", "")
    assert points.pop(consumed) == 2
    assert points.pop(("messaging.process.duration", "s", "process", "process", "")) == 1
    failed = ("messaging.process.duration", "s", "process", "process", "ValueError")
    assert points.pop(failed) == 1
    calls = "messaging.client.operation.duration"
    assert set(points) == {
        (calls, "s", "send", "send", ""),
        (calls, "s", "nack", "settle", ""),
        (calls, "s", "ack", "settle", ""),
    }
