"""Metrics of the endpoint for Redis clients, read from existing counters at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.host.metrics.families import families
from delaylog.broker.keyspace.running.executor import Executor


class RespMetrics(Collector):
    """The metrics of one endpoint."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        executor, server = self._executor, self._executor.server
        databases = executor.keyspace.databases
        values = {
            "clients": len(executor.sessions),
            "blocked_clients": len(executor.waits.sessions),
            "keys": sum(len(database.values) for database in databases),
            "expiring_keys": sum(len(database.expires) for database in databases),
            "commands_total": server.commands_run,
            "errors_total": server.errors_answered,
            "connections_total": server.connections,
            "connections_refused_total": server.refused_connections,
            "failed_logins_total": server.failed_logins,
            "expired_keys_total": executor.keyspace.expired_keys,
        }
        yield from families({f"delaylog_resp_{name}": value for name, value in values.items()})
