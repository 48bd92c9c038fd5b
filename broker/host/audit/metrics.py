"""Metrics of the audit log, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.host.audit.audit_log import AuditLog
from delaylog.broker.host.metrics.families import families


class AuditMetrics(Collector):
    """The metrics of one node's audit log."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        audit = self._audit
        return families(
            {
                "delaylog_audit_lines_total": audit.lines,
                "delaylog_audit_failures_total": audit.failures,
                "delaylog_audit_lost_lines_total": audit.lost,
                "delaylog_audit_failing": int(audit.failing is not None),
                "delaylog_audit_pending_lines": audit.pending,
            }
        )
