"""Spans of handlers, by the SDK of OpenTelemetry."""

from __future__ import annotations

import pytest
from opentelemetry import trace
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
        await_that(lambda: len(exporter.get_finished_spans()) == 3)
    order, first, second = exporter.get_finished_spans()
    assert order.context is not None
    for number, span in enumerate((first, second), 1):
        assert (span.name, span.kind) == ("process t", SpanKind.CONSUMER)
        assert span.parent is not None
        assert span.parent.span_id == order.context.span_id
        assert span.attributes == {
            "messaging.system": "delaylog",
            "messaging.operation.type": "process",
            "messaging.destination.name": "t",
            "messaging.message.id": "m",
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
    assert exporter.get_finished_spans()[0].parent is None
