"""OpenTelemetryHooks: spans and metrics of sends and handlers, by OpenTelemetry's conventions.

The package is the extra `delaylog[opentelemetry]`. The context of a send travels in the headers of
the message, in the form of the program's propagators (by default W3C's `traceparent`), and no
redelivery changes it. A message may be due a year later, so a delivery is a trace of its own that
links to its send, unless the delay was short.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from delaylog.extras import absent

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise absent(error, "delaylog.client.instruments.opentelemetry", "opentelemetry") from None

from delaylog.client.handlers import Retry
from delaylog.client.hooks import Hooks
from delaylog.client.message import LeasedMessage
from delaylog.client.wire.times import MS, check_span

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions that the names follow."""
SENT_HEADER: Final = "delaylog-sent-ms"
"""Header of a message that was sent inside a trace: when, in Unix milliseconds."""
DURATION_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Seconds: the buckets that the conventions ask for."""
_KEEPS: Final = frozenset({"begin", "extend"})
"""Verbs of settling calls that do not end the lease."""
_Attributes: TypeAlias = dict[str, str | int]


class OpenTelemetryHooks(Hooks):
    """The spans and metrics. A provider that is None is the one that the program has set.

    They name the server if all clients that have this object know one address only: which node of
    a cluster answers is not known here.

    A delivery that begins less than `parent_if_under` after its send is a child of the span of the
    send; all others link to it. 0 links always, timedelta.max never.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        parent_if_under: timedelta = timedelta(seconds=5),
    ) -> None:
        release = version("delaylog")
        check_span("parent_if_under", parent_if_under)
        self._all_parents = parent_if_under == timedelta.max
        self._parent_if_under_ms = parent_if_under / MS
        self._urls: set[str] = set()
        self._server: dict[str, str | int] = {}
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

    def on_client(self, urls: Sequence[str]) -> None:
        """Name the server from now on, if there is only one address."""
        self._urls.update(urls)
        self._server = {}
        if len(self._urls) == 1:
            url = urlsplit(next(iter(self._urls)))
            self._server["server.address"] = url.hostname or ""
            self._server["server.port"] = url.port or (443 if url.scheme == "https" else 80)

    # ------------------------------------------------------------------ metrics and spans of calls

    def on_sent(self, topic: str, n: int, seconds: float) -> None:
        """Count the messages, and the time of their request."""
        attributes = self._operation("send", "send", topic)
        self._sent.add(n, attributes)
        self._operation_s.record(seconds, attributes)

    def on_send_failed(self, topic: str, n: int, error: Exception, seconds: float) -> None:
        """Count the messages and the time, with the class of the error."""
        attributes = self._operation("send", "send", topic) | _error(error)
        self._sent.add(n, attributes)
        self._operation_s.record(seconds, attributes)

    def on_receive(self, topic: str, messages: Sequence[LeasedMessage], seconds: float) -> None:
        """Count the messages and the time of the call; a span links to the send of each message."""
        attributes = self._operation("receive", "receive", topic)
        self._consumed.add(len(messages), attributes)
        self._operation_s.record(seconds, attributes)
        made = (_creation(_sent_with(dict(each.headers))) for each in messages if each.headers)
        self._span_of_call(
            attributes, len(messages), seconds, [Link(c) for c in made if c.is_valid]
        )

    def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:
        """Count the time of the call; a span, unless the messages stay under lease."""
        attributes = self._operation(verb, "settle", topic)
        self._operation_s.record(seconds, attributes)
        if verb not in _KEEPS:
            self._span_of_call(attributes, n, seconds)

    def _span_of_call(
        self, attributes: _Attributes, n: int, seconds: float, links: Sequence[Link] = ()
    ) -> None:
        """A span of a call of a worker that has just been answered: a trace of its own."""
        name = (
            f"{attributes['messaging.operation.name']} {attributes['messaging.destination.name']}"
        )
        ended_ns = time.time_ns()
        self._tracer.start_span(
            name,
            Context(),
            SpanKind.CLIENT,
            {**attributes, "messaging.batch.message_count": n},
            links,
            start_time=ended_ns - int(seconds * 1e9),
        ).end(ended_ns)

    def on_handled(self, message: LeasedMessage, seconds: float) -> None:
        """Count the time of the handler."""
        self._process_s.record(seconds, self._operation("process", "process", message.topic))

    def on_handler_error(
        self, message: LeasedMessage, error: BaseException, seconds: float
    ) -> None:
        """Count the time of the handler, with the class of its exception."""
        attributes = self._operation("process", "process", message.topic)
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
            attributes=self._operation("create", "create", topic),
        ):
            propagate.inject(headers)
        return headers

    @contextmanager
    def handling(self, message: LeasedMessage) -> Iterator[None]:
        """A span; an exception of the handler is recorded in it, and is its error."""
        headers = dict(message.headers)
        sent = _sent_with(headers)
        creation = _creation(sent)
        is_child = self._is_prompt(headers.get(SENT_HEADER))
        attributes: _Attributes = {
            **self._operation("process", "process", message.topic),
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

    def _operation(self, name: str, kind: str, topic: str) -> _Attributes:
        """The attributes that spans and metrics of an operation share."""
        return {
            "messaging.system": "delaylog",
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            "messaging.destination.name": topic,
            **self._server,
        }

    def _is_prompt(self, sent_ms: str | None) -> bool:
        """Whether a message is handled soon after its send; unknown counts as later."""
        if sent_ms is None or not sent_ms.isdecimal():
            return self._all_parents
        return _now_ms() - int(sent_ms) < self._parent_if_under_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _sent_with(headers: dict[str, str]) -> Context:
    """The context that a message was sent with."""
    return propagate.extract(headers, Context())


def _creation(sent: Context) -> SpanContext:
    """The span that says that the message was made; not valid if there is none."""
    return trace.get_current_span(sent).get_span_context()


def _error(error: BaseException) -> _Attributes:
    return {"error.type": type(error).__qualname__}
