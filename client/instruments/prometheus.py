"""PrometheusHooks: counts and times of a client and its workers, as metrics of prometheus_client.

The package is the extra `delaylog[prometheus]`. The labels are topics and verbs only, so that their
number does not grow with the messages.
"""

from __future__ import annotations

from delaylog.extras import absent

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
except ImportError as error:
    raise absent(error, "delaylog.client.instruments.prometheus", "prometheus") from None

from delaylog.client.hooks import Hooks
from delaylog.client.message import LeasedMessage


class PrometheusHooks(Hooks):
    """The metrics. One object may be given to several clients; a registry takes one object.

    ValueError if the registry has metrics of these names already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"delaylog_client_{name}", help, labels, registry=registry)

        def histogram(name: str, help: str, *labels: str) -> Histogram:
            return Histogram(f"delaylog_client_{name}", help, labels, registry=registry)

        self._sent = counter("sent", "Messages that a broker accepted.", "topic")
        self._send_s = histogram(
            "send_seconds", "From the first message of a request to its answer.", "topic"
        )
        self._retried = counter("send_retries", "Repeated requests of sends.", "topic")
        self._failed = counter("send_failures", "Messages that could not be sent.", "topic")
        self._received = counter("received", "Messages that workers received.", "topic")
        self._handler_s = histogram(
            "handler_seconds", "Time of handlers that returned, or raised.", "topic", "outcome"
        )
        self._lost = counter("leases_lost", "Leases that ended before their ack.", "topic")
        self._settled = counter("settled", "Messages of answered settling calls.", "topic", "verb")

    def on_sent(self, topic: str, n: int, seconds: float) -> None:
        """Count the messages, and the time of their request."""
        self._sent.labels(topic).inc(n)
        self._send_s.labels(topic).observe(seconds)

    def on_send_retry(self, topic: str, n: int, error: Exception) -> None:  # noqa: ARG002
        """Count the request."""
        self._retried.labels(topic).inc()

    def on_send_failed(
        self,
        topic: str,
        n: int,
        error: Exception,  # noqa: ARG002
        seconds: float,  # noqa: ARG002
    ) -> None:
        """Count the messages."""
        self._failed.labels(topic).inc(n)

    def on_received(self, topic: str, n: int) -> None:
        """Count the messages."""
        self._received.labels(topic).inc(n)

    def on_handled(self, message: LeasedMessage, seconds: float) -> None:
        """Count the handler and its time."""
        self._handler_s.labels(message.topic, "returned").observe(seconds)

    def on_handler_error(
        self,
        message: LeasedMessage,
        error: BaseException,  # noqa: ARG002
        seconds: float,
    ) -> None:
        """Count the handler and its time."""
        self._handler_s.labels(message.topic, "raised").observe(seconds)

    def on_lease_lost(self, message: LeasedMessage) -> None:
        """Count the lease."""
        self._lost.labels(message.topic).inc()

    def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:  # noqa: ARG002
        """Count the messages."""
        self._settled.labels(topic, verb).inc(n)
