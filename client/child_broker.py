"""ChildBroker: a real broker as a child process on loopback, for tests and benches; its ports.

It starts `delaylog serve`, waits for the ready line, and ends the process with SIGTERM or SIGKILL.
Leaving the `async with` block always kills the process; it survives only if this program itself is
killed with SIGKILL. The data folder belongs to the caller. To test recovery, start the broker again
on the same folder.

A port that `free_port` returned stays reserved until this process ends, also while nothing listens
on it. Binding to port 0 cannot promise this: after the listener closes, the system may use the port
as the source of any outgoing connection, even of one to that very port, or give it to another test.
Therefore ports are taken from below the system's ephemeral range, and a lock on one byte of a file
in /tmp tells other processes that the port is in use.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Final, Self

# --------------------------------------------------------------------- ports that stay reserved

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


# ----------------------------------------------------------------------------------- the broker

READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 20.0
LOG_TAIL_CHARS: Final = 2000


class BrokerStartError(Exception):
    """The broker ended or was not ready in time; the message has its last log lines."""


class ChildBroker:
    """One broker on one data folder. `port` 0 picks a free port, which restarts keep."""

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        options: Sequence[str] = (),
        program: Sequence[str] | None = None,
    ) -> None:
        """`program` replaces the `delaylog` command, for example to wrap it in another one."""
        self.data_dir = data_dir
        self.log_path = data_dir.parent / f"{data_dir.name}.log"
        self.port = port
        self.started_in_s = 0.0
        self.host = host
        self._options = tuple(options)
        self._program = program
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    @property
    def url(self) -> str:
        """The base URL of the broker, also after it was killed."""
        return f"http://{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process exists. It may hang: this does not contact the broker."""
        return self._process is not None and self._process.returncode is None

    @property
    def process_id(self) -> int | None:
        """The id of the running process, or None."""
        return self._process.pid if self.running and self._process else None

    async def start(self, *more: str) -> str:
        """Start the broker with `more` options, and return its URL once it is ready."""
        assert not self.running, "the broker is already running"
        began = time.monotonic()
        self.port = self.port or free_port()
        words = ["serve", "--data-dir", str(self.data_dir), "--http", f"{self.host}:{self.port}"]
        with self.log_path.open("ab") as log:
            self._process = await self._begin([*words, *self._options, *more], log)
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._await_ready()
        except BaseException as error:
            await self.kill()
            if not isinstance(error, (TimeoutError, BrokerStartError)):
                raise
            reason = str(error) or f"no ready line within {READY_TIMEOUT_S:.0f} s"
            raise BrokerStartError(f"{reason}\n{self.log_tail()}") from None
        self.started_in_s = time.monotonic() - began
        return self.url

    async def kill(self) -> None:
        """End the process with SIGKILL, as in a crash. Does nothing if it has ended."""
        await self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP, without waiting for its effect."""
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> int | None:
        """Send SIGTERM and return the exit status; SIGKILL if that takes too long."""
        try:
            await self._end(signal.SIGTERM, STOP_TIMEOUT_S)
        except TimeoutError:
            await self.kill()
        return self._process.returncode if self._process else None

    def log_tail(self) -> str:
        """The last lines of the broker's log, which all its starts share."""
        try:
            return self.log_path.read_text(errors="replace")[-LOG_TAIL_CHARS:]
        except FileNotFoundError:
            return ""

    async def _begin(self, words: Sequence[str], log: IO[bytes]) -> asyncio.subprocess.Process:
        """Start the process."""
        return await asyncio.create_subprocess_exec(
            *(self._program or delaylog_program()),
            *words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )

    async def _await_ready(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        while line := await process.stdout.readline():
            words = line.decode(errors="replace").split()
            if words and words[0] == "ready":
                places = dict(word.split("=", 1) for word in words[1:] if "=" in word)
                self.port = int(places.get("http", ":0").rsplit(":", 1)[1])
                return
        status = await process.wait()
        raise BrokerStartError(f"the broker ended with status {status} before it was ready")

    async def _end(self, number: signal.Signals, timeout_s: float) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(number)
        async with asyncio.timeout(timeout_s):
            await process.wait()


def delaylog_program() -> list[str]:
    """The `delaylog` command of the environment this program runs in."""
    script = Path(sys.executable).parent / "delaylog"
    return [str(script)] if script.exists() else [sys.executable, "-P", "-m", "delaylog.broker"]
