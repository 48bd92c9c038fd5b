"""OpenTelemetryHooks: a span around each handler, as a child of the span that sent the message.

The package is the extra `delaylog[opentelemetry]`. The context of the trace travels in the headers
of the message, in the form of the program's propagators (by default W3C's `traceparent`). So a
trace continues in another process, however long the message waited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from delaylog.client.hooks import Hooks
from delaylog.client.message import LeasedMessage
from delaylog.client.outcomes import Retry


class OpenTelemetryHooks(Hooks):
    """The spans. `tracer_provider`: None uses the one that the program has set."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("delaylog", version("delaylog"), tracer_provider)

    def outgoing_headers(self, topic: str) -> Mapping[str, str] | None:  # noqa: ARG002
        """The context of the current span."""
        headers: dict[str, str] = {}
        propagate.inject(headers)
        return headers or None

    @contextmanager
    def handling(self, message: LeasedMessage) -> Iterator[None]:
        """A span; an exception of the handler is recorded in it, and is its error."""
        headers = dict(message.headers)
        attributes: dict[str, str | int] = {
            "messaging.system": "delaylog",
            "messaging.operation.type": "process",
            "messaging.destination.name": message.topic,
            "messaging.message.id": message.id,
            "delaylog.attempts": message.attempts,
        }
        with self._tracer.start_as_current_span(
            f"process {message.topic}",
            context=propagate.extract(headers),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
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
                span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                raise
