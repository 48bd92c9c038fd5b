"""Ports for brokers that are started, killed and started again on one machine.

The one rule: a port that was given stays free for its owner until this process ends, also while
nothing listens on it. A port that the system picks (by binding to 0) does not: once its listener is
gone it may become the source of any outgoing connection, even of one that dials it, or be picked
for another test. So ports come from below the system's own range, and a lock on a byte of a file in
the temporary folder tells other processes that a port has its owner.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_USUAL_END: Final = 32_768
"""Where the system's own range begins if nobody changed it."""
_TRIES: Final = 10_000

_given: set[int] = set()
_giving = threading.Lock()


def free_port() -> int:
    """A port on which nobody listens, by TCP nor by UDP, and that nobody else is given."""
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Several of them, all different. Raises OSError if the machine has no more."""
    found: list[int] = []
    with _giving:
        for port in secrets.SystemRandom().choices(_candidates(), k=_TRIES):
            if port not in _given and _is_free(port) and _owned(port):
                _given.add(port)
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(errno.EADDRINUSE, f"no {count} free ports among {_TRIES} that were tried")


@cache
def _candidates() -> range:
    """Ports that the system does not give to connections by itself, if it leaves enough of them."""
    begins = _USUAL_END
    with suppress(OSError, ValueError):
        begins = int(_RANGE_FILE.read_text().split()[0])
    return range(_LOWEST, begins if begins > 2 * _LOWEST else _USUAL_END)


def _is_free(port: int) -> bool:
    """Whether it can be bound, on whatever address."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


def _owned(port: int) -> bool:
    """Make it ours until this process ends; false if another process has it."""
    file = _lock_file()
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _lock_file() -> int:
    """Opened once in a process: closing any descriptor of it would end all of its locks."""
    # Not where TMPDIR says: processes that were given different ones share the ports.
    folder = Path("/tmp")
    folder = folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())
    return os.open(folder / f"delaylog-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)
