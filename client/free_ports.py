"""Ports for brokers that are started, killed and restarted on one machine.

A port that `free_port` returned stays reserved until this process ends, also while nothing listens
on it. Binding to port 0 cannot promise this: after the listener closes, the system may use the port
as the source of any outgoing connection, even of one to that very port, or give it to another test.
Therefore ports are taken from below the system's ephemeral range, and a lock on one byte of a file
in /tmp tells other processes that the port is in use.
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
"""The default start of the system's ephemeral range."""
_TRIES: Final = 10_000

_given: set[int] = set()
_giving = threading.Lock()


def free_port() -> int:
    """Reserve a port on which nothing listens, neither TCP nor UDP."""
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Reserve several different ports. OSError if not enough free ports were found."""
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
    """The ports below the system's ephemeral range, if there are enough of them."""
    begins = _USUAL_END
    with suppress(OSError, ValueError):
        begins = int(_RANGE_FILE.read_text().split()[0])
    return range(_LOWEST, begins if begins > 2 * _LOWEST else _USUAL_END)


def _is_free(port: int) -> bool:
    """Whether the port can be bound on all addresses."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


def _owned(port: int) -> bool:
    """Reserve the port until this process ends; False if another process has reserved it."""
    file = _lock_file()
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _lock_file() -> int:
    """The lock file. It is opened once: closing any descriptor of it would release all locks."""
    # TMPDIR is ignored: processes with different values of it still share the ports.
    folder = Path("/tmp")
    folder = folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())
    return os.open(folder / f"delaylog-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)
