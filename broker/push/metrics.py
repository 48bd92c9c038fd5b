"""Metrics of pushes, read at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.host.metrics.families import by_label, families
from delaylog.broker.push.pusher import Pusher

STATES = ("closed", "open", "half-open", "throttled", "disabled")


class PushMetrics(Collector):
    """Targets by state, attempts in flight, and attempts that ended."""

    def __init__(self, pusher: Pusher, now_ms: Callable[[], int]) -> None:
        self._pusher, self._now_ms = pusher, now_ms

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        now_ms, share = self._now_ms(), self._pusher.share
        states = Counter(pump.breaker.health.state(now_ms) for pump in self._pusher.pumps.values())
        yield by_label("delaylog_push_targets", {state: states[state] for state in STATES})
        yield from families({"delaylog_push_in_flight": share.in_flight})
        ended = {verdict.name.lower(): count for verdict, count in share.ended.items()}
        yield by_label("delaylog_push_attempts_total", ended)
