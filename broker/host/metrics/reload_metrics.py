"""The metrics of reloads, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.host.metrics.families import by_label, family
from delaylog.broker.host.watch.reloader import Reloader


class ReloadMetrics(Collector):
    """How often the files of a process were read again."""

    def __init__(self, reloader: Reloader) -> None:
        self._reloader = reloader

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        yield family("delaylog_reloads_total", self._reloader.counts.items())
        yield by_label("delaylog_reload_failed", self._reloader.failing)
