"""The budget of file descriptors of the process: how many each use may open.

The limit of the process is read once, at the start. A fixed part is reserved for essential files
and sockets: the log, checkpoints, the id index, the event loop, peers. Clients and hours share the
rest, so that neither can take a descriptor that a commit needs.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

RESERVED: Final = 64
"""Standard streams, event loop, listeners, log segments, tick slots, id index, a checkpoint, a
backup, spilled queues and peers."""
FILES_PER_HOUR: Final = 5
"""Delay log, delay index, extents, second index, and a state column that is being written."""
SERVE_WANTS: Final = 65_536
"""`serve` raises the limit of the process to this, as far as the system allows."""
OPEN_HOURS_SERVED: Final = 1_024
"""Open hours of a broker that is not embedded; more bring no benefit."""
UNLIMITED: Final = 1 << 20
"""Used as the limit of a process that has none."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The shares of one process."""

    limit: int
    """Descriptors that the process may open."""
    clients: int
    """Connections of clients, HTTP and RESP together."""
    hours: int
    """Hours whose files there are descriptors for."""
    pushes: int = 0
    """Connections to push targets: attempts in flight, and idle ones."""


def process_limit() -> int:
    """The soft limit of this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_process_limit() -> None:
    """Raise the soft limit, up to `SERVE_WANTS` or the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SERVE_WANTS if hard == resource.RLIM_INFINITY else min(hard, SERVE_WANTS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def served() -> Descriptors:
    """The shares of a broker that serves: clients get half of all descriptors."""
    limit = process_limit()
    clients, pushes = limit // 2, limit // 8
    return Descriptors(limit, clients, _hours(limit - clients - pushes - RESERVED), pushes)


def embedded() -> Descriptors:
    """The shares of an embedded broker: half of the unreserved ones remain for the program."""
    limit = process_limit()
    return Descriptors(limit, 0, _hours((limit - RESERVED) // 2))


def _hours(files: int) -> int:
    return max(files // FILES_PER_HOUR, 2)
