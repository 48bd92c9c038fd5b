"""What only the host knows: facts for INFO and CONFIG, metrics, and the bound on memory.

Metrics are read from existing counters at each scrape. `resp-maxmemory` bounds the memory of the
process for writes of Redis clients. The keyspace does not count its bytes. The bound applies to the
anonymous memory of the process (without mapped files), so messages and connections count too.
Measuring takes 20 us, so a measurement is reused for a moment, or until many bytes were requested.
A short command that creates a large value (RESTORE) announces its size first.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog import __version__
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.system.process_memory import anonymous_bytes, resident_bytes
from delaylog.broker.host.watch.metrics_table import families
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.running.shared_state import Facts, ServerState
from delaylog.broker.rules.addresses import host_port

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


# ---------------------------------------------------------------------------------------- facts


def address_text(address: object) -> bytes:
    """Format the address of a socket as HOST:PORT."""
    if not isinstance(address, tuple):
        return b""
    return host_port(address[:2]).encode()


def host_in(address: bytes) -> str:
    """The host in the text of an address, without the brackets of IPv6."""
    return address.rpartition(b":")[0].decode().strip("[]")


def tell(server: ServerState, node: Node, *, after_write: bool) -> None:
    """Connect the server's state to its host."""
    server.run_id = node.machine.random_bytes(20).hex().encode()
    server.process_id = os.getpid()
    server.role = lambda: b"master" if node.role.leading else b"slave"
    server.leader = lambda: _leader(node)
    server.facts = _facts
    server.delaylog_facts = lambda: _delaylog(node, after_write=after_write)
    server.given |= {
        b"appendonly": b"yes",
        b"appendfsync": b"everysec" if after_write else b"always",
    }


def _leader(node: Node) -> tuple[bytes, int] | None:
    found = node.role.leader_resp()
    return None if found is None else (found[0].encode(), found[1])


def listens(server: ServerState, host: str, port: int) -> None:
    """Set the address that the endpoint listens on."""
    server.address = (host.encode(), port)
    server.given |= {b"bind": host.encode(), b"port": b"%d" % port}


def _facts() -> Facts:
    now, peak = resident_bytes()
    spent = os.times()
    system = platform.uname()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        b"os": f"{system.system} {system.release} {system.machine}".encode(),
        b"executable": os.path.realpath(sys.argv[0]).encode(),
        b"used_memory": b"%d" % now,
        b"used_memory_rss": b"%d" % now,
        b"used_memory_peak": b"%d" % peak,
        b"total_system_memory": b"%d" % memory,
        b"used_cpu_sys": b"%.6f" % spent.system,
        b"used_cpu_user": b"%.6f" % spent.user,
    }


def _delaylog(node: Node, *, after_write: bool) -> Facts:
    state = node.engine.state
    return {
        b"delaylog_version": __version__.encode(),
        b"answers_after": b"write" if after_write else b"fsync",
        b"log_end_position": b"%d" % state.log.end_position,
        b"log_durable_position": b"%d" % state.log.durable_position,
        b"log_applied_position": b"%d" % state.position,
        b"group_commits": b"%d" % node.log_commits.commits,
        b"topics": b"%d" % len(state.by_number),
        b"leases": b"%d" % len(state.leases),
        b"epoch": b"%d" % state.epoch_counter,
        b"leading": b"%d" % node.role.leading,
    }


# -------------------------------------------------------------------------------------- metrics


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
            "blocked_clients": executor.blocked_clients,
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


# --------------------------------------------------------------------------------------- memory

LOOK_SECONDS: Final = 0.05
_LOOK_BYTES: Final = 8 << 20
"""After requests for this number of bytes the memory is measured again."""


class MemoryBound:
    """The memory bound of one process."""

    def __init__(
        self,
        bytes_max: int,
        used: Callable[[], int | None] = anonymous_bytes,
        now: Callable[[], float] = REAL.steady_s,
    ) -> None:
        """`bytes_max` = 0: no bound; `now` = seconds of a steady clock."""
        self._now = now
        self.bytes_max = bytes_max
        self._used = used
        self._seen = self._asked = 0
        self._next_look = 0.0

    def refuses(self, size: int = 0) -> bool:
        """Whether `size` more bytes exceed the bound."""
        if not self.bytes_max:
            return False
        self._asked += size
        now = self._now()
        if now >= self._next_look or self._asked >= _LOOK_BYTES:
            self._next_look = now + LOOK_SECONDS
            self._seen, self._asked = self._used() or 0, size
        return self._seen + self._asked > self.bytes_max
