"""OpenTelemetryHooks: spans and metrics of sends and handlers, by OpenTelemetry's conventions.

The package is the extra `delaylog[opentelemetry]`. The context of a send travels in the headers of
the message, in the form of the program's propagators (by default W3C's `traceparent`), and no
redelivery changes it. A message may be due a year later, so a delivery is a trace of its own that
links to its send, unless the delay was short.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider

from delaylog.client.hooks import Hooks
from delaylog.client.message import LeasedMessage
from delaylog.client.outcomes import Retry

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions that the names follow."""
SENT_HEADER: Final = "delaylog-sent-ms"
"""Header of a message that was sent inside a trace: when, in Unix milliseconds."""
DURATION_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Seconds: the buckets that the conventions ask for."""


class OpenTelemetryHooks(Hooks):
    """The spans and metrics. A provider that is None is the one that the program has set.

    A delivery that begins less than `parent_if_under_s` seconds after its send is a child of the
    span of the send; all others link to it. 0 links always, infinity never.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        parent_if_under_s: float = 5.0,
    ) -> None:
        release = version("delaylog")
        self._parent_if_under_ms = parent_if_under_s * 1000
        self._tracer = trace.get_tracer("delaylog", release, tracer_provider, SCHEMA)
        meter = metrics.get_meter("delaylog", release, meter_provider, SCHEMA)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that a broker accepted."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that workers received."
        )
        self._operation_s = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Time of a call of the broker.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )
        self._process_s = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Time of a handler.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )

    # ------------------------------------------------------------------ metrics

    def on_sent(self, topic: str, n: int, seconds: float) -> None:
        """Count the messages, and the time of their request."""
        self._sent.add(n, _operation("send", "send", topic))
        self._operation_s.record(seconds, _operation("send", "send", topic))

    def on_send_failed(self, topic: str, n: int, error: Exception) -> None:
        """Count the messages, with the class of the error."""
        self._sent.add(n, _operation("send", "send", topic) | _error(error))

    def on_received(self, topic: str, n: int) -> None:
        """Count the messages."""
        self._consumed.add(n, _operation("receive", "receive", topic))

    def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:  # noqa: ARG002
        """Count the time of the call."""
        self._operation_s.record(seconds, _operation(verb, "settle", topic))

    def on_handled(self, message: LeasedMessage, seconds: float) -> None:
        """Count the time of the handler."""
        self._process_s.record(seconds, _operation("process", "process", message.topic))

    def on_handler_error(
        self, message: LeasedMessage, error: BaseException, seconds: float
    ) -> None:
        """Count the time of the handler, with the class of its exception."""
        attributes = _operation("process", "process", message.topic)
        self._process_s.record(seconds, attributes | _error(error))

    # ------------------------------------------------------------------ spans

    def outgoing_headers(self, topic: str) -> Mapping[str, str] | None:
        """The context of a span that says that the message was made, inside a trace only."""
        if not trace.get_current_span().get_span_context().is_valid:
            return None
        headers = {SENT_HEADER: str(_now_ms())}
        with self._tracer.start_as_current_span(
            f"create {topic}",
            kind=SpanKind.PRODUCER,
            attributes=_operation("create", "create", topic),
        ):
            propagate.inject(headers)
        return headers

    @contextmanager
    def handling(self, message: LeasedMessage) -> Iterator[None]:
        """A span; an exception of the handler is recorded in it, and is its error."""
        headers = dict(message.headers)
        sent = propagate.extract(headers, Context())
        creation = trace.get_current_span(sent).get_span_context()
        is_child = self._is_prompt(headers.get(SENT_HEADER))
        attributes: dict[str, str | int] = {
            **_operation("process", "process", message.topic),
            "messaging.message.id": message.id,
            "messaging.message.body.size": len(message.body),
            "delaylog.attempts": message.attempts,
            "delaylog.deliver_at_ms": message.deliver_at_ms,
        }
        if message.group is not None:
            attributes["messaging.consumer.group.name"] = message.group
        with self._tracer.start_as_current_span(
            f"process {message.topic}",
            context=sent if is_child else Context(),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(creation)] if creation.is_valid and not is_child else [],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Retry:
                # A decision, not a failure.
                raise
            except BaseException as error:
                span.record_exception(error)
                span.set_attributes(_error(error))
                span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                raise

    def _is_prompt(self, sent_ms: str | None) -> bool:
        """Whether a message is handled soon after its send; unknown counts as later."""
        if sent_ms is None or not sent_ms.isdecimal():
            return self._parent_if_under_ms == float("inf")
        return _now_ms() - int(sent_ms) < self._parent_if_under_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _operation(name: str, kind: str, topic: str) -> dict[str, str | int]:
    """The attributes that spans and metrics of an operation share."""
    return {
        "messaging.system": "delaylog",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _error(error: BaseException) -> dict[str, str | int]:
    return {"error.type": type(error).__qualname__}
