"""Metrics of pushes, read at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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
        targets = GaugeMetricFamily(
            "delaylog_push_targets", "Push targets of this leader.", labels=["state"]
        )
        for state in STATES:
            targets.add_metric([state], states[state])
        yield targets
        yield GaugeMetricFamily(
            "delaylog_push_in_flight", "Attempts at push targets in flight.", share.in_flight
        )
        attempts = CounterMetricFamily(
            "delaylog_push_attempts", "Attempts at push targets that ended.", labels=["result"]
        )
        for verdict, count in share.ended.items():
            attempts.add_metric([verdict.name.lower()], count)
        yield attempts
