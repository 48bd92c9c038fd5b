"""Metrics of the audit log, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from delaylog.broker.host.audit.audit_log import AuditLog


class AuditMetrics(Collector):
    """The metrics of one node's audit log."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        audit = self._audit
        counters = {
            "delaylog_audit_lines": ("Lines of the audit log made durable.", audit.lines),
            "delaylog_audit_failures": (
                "Writes of the audit log that failed.",
                audit.failures,
            ),
            "delaylog_audit_lost_lines": (
                "Lines that found no room in memory while the audit log could not be written.",
                audit.lost,
            ),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(name, text, value)
        gauges = {
            "delaylog_audit_failing": (
                "1 while the audit log cannot be written and administrative calls are refused.",
                int(audit.failing is not None),
            ),
            "delaylog_audit_pending_lines": (
                "Lines of the audit log in memory.",
                audit.pending,
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value)
