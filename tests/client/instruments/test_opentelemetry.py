"""Spans of handlers, by the SDK of OpenTelemetry."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from delaylog.client import Client, LeasedMessage, NotReached, Retry
from delaylog.client.instruments.opentelemetry import OpenTelemetryHooks
from tests.client.workers.live import Kind, Live, Works
from tests.waiting import await_that


def server(live: Live) -> dict[str, Any]:
    """The attributes that name the broker."""
    url = urlsplit(live.url)
    return {"server.address": url.hostname, "server.port": url.port}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def made(exporter: InMemorySpanExporter, *, calls: bool = False) -> list[ReadableSpan]:
    """The ended spans of calls of the broker, or all others."""
    spans = exporter.get_finished_spans()
    return [span for span in spans if (span.kind is SpanKind.CLIENT) == calls]


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
            raise Retry(delay=timedelta(0))
        raise RuntimeError("boom")

    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("order"):
        works.in_threads.send("t", "x", id="m", max_retry=1)
    with works:
        live.await_counts(dead=1)
        await_that(lambda: len(made(exporter)) == 4)
    create, order, first, second = made(exporter)
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
            **server(live),
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
        await_that(lambda: len(made(exporter)) == 1)
    assert found == [{}]
    (span,) = made(exporter)
    assert span.parent is None
    assert not span.links


@pytest.mark.parametrize("seconds", [0.0, 0.2, 5.0])
def test_a_late_delivery_is_a_trace_that_links_to_its_send(
    live: Live,
    kind: Kind,
    provider: TracerProvider,
    exporter: InMemorySpanExporter,
    seconds: float,
) -> None:
    """0.3 s until a worker takes a message that was due at once is short for the last hook only.
    The link stays the same at a retry.
    """
    hooks = OpenTelemetryHooks(provider, parent_if_under=timedelta(seconds=seconds))
    works = Works(kind, live, hooks=[hooks])

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        if message.attempts == 1:
            raise Retry(delay=timedelta(0))

    with provider.get_tracer("test").start_as_current_span("order"):
        works.in_threads.send("t", "x")
    time.sleep(0.3)
    with works:
        live.await_counts(acked=1)
        await_that(lambda: len(made(exporter)) == 4)
    create, order, *deliveries = made(exporter)
    assert create.context is not None
    assert order.context is not None
    for span in deliveries:
        assert span.context is not None
        if seconds == 5.0:
            assert span.context.trace_id == order.context.trace_id
            assert not span.links
        else:
            assert span.parent is None
            assert span.context.trace_id != order.context.trace_id
            (link,) = span.links
            assert link.context.span_id == create.context.span_id
            assert link.context.trace_id == order.context.trace_id


def test_receives_and_settles_have_spans(
    live: Live, kind: Kind, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    """Method: one of two messages was sent inside a trace. The first attempt at each fails."""
    works = Works(kind, live, hooks=[OpenTelemetryHooks(provider)])

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        if message.attempts == 1:
            raise ValueError("boom")

    later = {"max_retry": 3, "backoff": {"first_ms": 1}}
    with provider.get_tracer("test").start_as_current_span("order"):
        works.in_threads.send("t", "x", **later)
    works.in_threads.send("t", "y", **later)
    begun_ns = time.time_ns()
    with works:
        live.await_counts(acked=2)
        await_that(lambda: settled(exporter) == {"ack t": 2, "nack t": 2})
    create = made(exporter)[0]
    assert create.context is not None
    links, received = [], 0
    for span in made(exporter, calls=True):
        assert span.parent is None
        assert span.attributes is not None
        attributes = dict(span.attributes)
        n = attributes.pop("messaging.batch.message_count")
        name = str(attributes["messaging.operation.name"])
        assert attributes == {
            **server(live),
            "messaging.system": "delaylog",
            "messaging.operation.name": name,
            "messaging.operation.type": "receive" if name == "receive" else "settle",
            "messaging.destination.name": "t",
        }
        assert span.start_time is not None
        assert span.end_time is not None
        # Two clocks: the steady one that measures the call may differ a little.
        assert begun_ns - 50_000_000 <= span.start_time <= span.end_time <= time.time_ns()
        if name == "receive":
            assert isinstance(n, int)
            received += n
            links += [link.context.span_id for link in span.links]
    assert received == 4
    assert links == [create.context.span_id] * 2


def settled(exporter: InMemorySpanExporter) -> dict[str, int]:
    """How many messages the spans of settling calls have, by their names."""
    found: dict[str, int] = {}
    for span in made(exporter, calls=True):
        if not span.name.startswith("receive"):
            n = (span.attributes or {})["messaging.batch.message_count"]
            assert isinstance(n, int)
            found[span.name] = found.get(span.name, 0) + n
    return found


def points(reader: InMemoryMetricReader, name: str) -> list[tuple[dict[str, Any], Any]]:
    """(attributes, point) of a metric."""
    data = reader.get_metrics_data()
    assert data is not None
    return [
        (dict(point.attributes or {}), point)
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if metric.name == name
    ]


def test_a_failed_send_has_a_time_and_an_error() -> None:
    """Method: nobody listens at the port, which is taken."""
    reader = InMemoryMetricReader()
    hooks = OpenTelemetryHooks(meter_provider=MeterProvider([reader]))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            Client(url, hooks=[hooks], timeout=timedelta(seconds=0.3)) as client,
            pytest.raises(NotReached),
        ):
            client.send("t", "x")
    for name in ("messaging.client.sent.messages", "messaging.client.operation.duration"):
        ((attributes, point),) = points(reader, name)
        assert attributes["error.type"].startswith("NotReached")
        assert getattr(point, "count", 1) == 1
        assert getattr(point, "sum", 0.1) > 0


def test_the_server_is_named_if_only_one_can_be_meant() -> None:
    reader = InMemoryMetricReader()
    hooks = OpenTelemetryHooks(meter_provider=MeterProvider([reader]))
    named: list[tuple[Any, Any]] = []
    for urls in (["https://a.example"], ["https://a.example"], ["http://[::1]:7070", "http://b"]):
        hooks.on_client(urls)
        hooks.on_sent(f"t{len(named)}", 1, 0.1)
        (found,) = (
            each
            for each, _ in points(reader, "messaging.client.sent.messages")
            if each["messaging.destination.name"] == f"t{len(named)}"
        )
        named.append((found.get("server.address"), found.get("server.port")))
    assert named == [("a.example", 443), ("a.example", 443), (None, None)]
    other = OpenTelemetryHooks()
    other.on_client(["http://[::1]:7070"])
    assert other._server == {"server.address": "::1", "server.port": 7070}


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
    found: dict[tuple[str, ...], float] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            words = dict(point.attributes or {})
            assert {name: words.pop(name) for name in server(live)} == server(live)
            assert words.pop("messaging.system") == "delaylog"
            assert words.pop("messaging.destination.name") == "t"
            name = str(words.pop("messaging.operation.name"))
            kind_of = str(words.pop("messaging.operation.type"))
            error = str(words.pop("error.type", ""))
            assert not words
            key = (metric.name, metric.unit or "", name, kind_of, error)
            found[key] = getattr(point, "count", None) or getattr(point, "value", 0)
    assert found.pop(("messaging.client.sent.messages", "{message}", "send", "send", "")) == 1
    consumed = ("messaging.client.consumed.messages", "{message}", "receive", "receive", "")
    assert found.pop(consumed) == 2
    assert found.pop(("messaging.process.duration", "s", "process", "process", "")) == 1
    failed = ("messaging.process.duration", "s", "process", "process", "ValueError")
    assert found.pop(failed) == 1
    calls = "messaging.client.operation.duration"
    assert set(found) == {
        (calls, "s", "send", "send", ""),
        (calls, "s", "receive", "receive", ""),
        (calls, "s", "nack", "settle", ""),
        (calls, "s", "ack", "settle", ""),
    }
