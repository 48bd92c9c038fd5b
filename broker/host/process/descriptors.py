"""One budget of file descriptors for the process: who may hold how many.

The limit of the process is read once, at the start. A fixed part is reserved for what the broker
cannot do without: the log, checkpoints, the id index, the event loop, peers. Clients and hours
share the rest, so that neither can take a descriptor that a commit needs.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass, replace
from typing import Final

from delaylog.broker.engine.limits import Limits

RESERVED: Final = 64
"""Standard streams, event loop, listeners, log segments, tick slots, id index, a checkpoint, a
backup, spilled queues and peers."""
FILES_PER_HOUR: Final = 5
"""Delay log, delay index, extents, second index, and a state column that is being written."""
SERVE_WANTS: Final = 65_536
"""What `serve` raises the limit of the process to, where the system allows it."""
OPEN_HOURS_SERVED: Final = 1_024
"""Open hours of a broker that has a process of its own; more bring nothing."""
UNLIMITED: Final = 1 << 20
"""Taken for the limit of a process without one."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The shares of one process."""

    limit: int
    """Descriptors that the process may hold."""
    clients: int
    """Connections of clients, HTTP and RESP together."""
    hours: int
    """Hours whose files may be open."""

    def limit_hours(self, limits: Limits) -> Limits:
        """`limits` with no more open hours than there are descriptors for."""
        return replace(limits, open_hours_max=min(limits.open_hours_max, self.hours))


def process_limit() -> int:
    """The soft limit of this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_process_limit() -> None:
    """Take what the system allows: connections and hours need descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SERVE_WANTS if hard == resource.RLIM_INFINITY else min(hard, SERVE_WANTS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def served() -> Descriptors:
    """The shares of a broker that serves: clients get half of all."""
    limit = process_limit()
    clients = limit // 2
    return Descriptors(limit, clients, _hours(limit - clients - RESERVED))


def embedded() -> Descriptors:
    """The shares inside of another program, which keeps half for itself."""
    limit = process_limit()
    return Descriptors(limit, 0, _hours((limit - RESERVED) // 2))


def _hours(files: int) -> int:
    return max(files // FILES_PER_HOUR, 2)
