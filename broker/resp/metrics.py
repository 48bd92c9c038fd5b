"""Metrics of the endpoint for Redis clients, read from existing counters at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from delaylog.broker.keyspace.running.executor import Executor


class RespMetrics(Collector):
    """The metrics of one endpoint."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        executor, server = self._executor, self._executor.server
        databases = executor.keyspace.databases
        gauges = {
            "delaylog_resp_clients": ("Redis clients connected.", len(executor.sessions)),
            "delaylog_resp_blocked_clients": (
                "Redis clients in a blocking command.",
                len(executor.waits.sessions),
            ),
            "delaylog_resp_keys": (
                "Keys in all databases.",
                sum(len(database.values) for database in databases),
            ),
            "delaylog_resp_expiring_keys": (
                "Keys that have an expiry.",
                sum(len(database.expires) for database in databases),
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value)
        counters = {
            "delaylog_resp_commands": ("Commands of Redis clients.", server.commands_run),
            "delaylog_resp_errors": ("Errors returned to Redis clients.", server.errors_answered),
            "delaylog_resp_connections": ("Redis clients accepted.", server.connections),
            "delaylog_resp_connections_refused": (
                "Redis clients refused because there were too many.",
                server.refused_connections,
            ),
            "delaylog_resp_failed_logins": (
                "Wrong tokens and passwords of Redis clients.",
                server.failed_logins,
            ),
            "delaylog_resp_expired_keys": (
                "Expired keys removed since the keyspace was loaded.",
                executor.keyspace.expired_keys,
            ),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(name, text, value)
