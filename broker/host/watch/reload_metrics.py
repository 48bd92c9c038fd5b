"""The metric of reloads, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from delaylog.broker.host.watch.reloader import Reloader


class ReloadMetrics(Collector):
    """How often the files of a process were read again."""

    def __init__(self, reloader: Reloader) -> None:
        self._reloader = reloader

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        reloads = CounterMetricFamily(
            "delaylog_reloads",
            "Reloads of configured files, by source and result.",
            labels=["source", "result"],
        )
        for labels, count in self._reloader.counts.items():
            reloads.add_metric(labels, count)
        yield reloads
