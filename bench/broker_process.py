"""ServerProcess: a server under test as a child process, from its ready line to its end.

Any program that prints `ready http=127.0.0.1:PORT …` fits: the broker, the bare handlers, later
peers. The one rule: leaving the block kills it, so nothing outlives the bench. The data folder
belongs to the caller; starting again on the same folder is how recovery is measured.
"""

from __future__ import annotations

import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self

import procfs
from loop_lag import METER

READY_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 30.0
LOG_TAIL_CHARS: Final = 1500


class ServerError(Exception):
    """The server ended, stayed silent or answered nonsense; the message holds its last lines."""


class ServerProcess:
    """One server; times are read off the monotonic clock."""

    def __init__(
        self, command: Sequence[str], *, log_path: Path | None = None, metered: bool = False
    ) -> None:
        """`metered` = a broker, whose loop lag belongs into the report."""
        self._command = list(command)
        self._metered = metered
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self._places: dict[str, str] = {}
        self.started_at = 0.0
        self.ready_at = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and (tail := self.log_tail()):
            error.add_note(f"the server's log ends with:\n{tail}")
        self.kill()

    @property
    def process_id(self) -> int:
        """Id of the running process."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started, and not ended from here."""
        return self._process is not None

    def start(self) -> None:
        """Start it and wait for the ready line."""
        assert self._process is None, "the server is already running"
        log = self._log_path.open("ab") if self._log_path else None
        self.started_at = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        if log:
            log.close()
        try:
            self.port = self._await_ready()
        except ServerError:
            self.kill()
            raise
        self.ready_at = time.monotonic()
        if self._metered:
            METER.add(self._process.pid, self.port)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would. Fine to call when it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it politely (SIGTERM), by force if that takes too long."""
        self._end(signal.SIGTERM)

    def port_of(self, name: str) -> int:
        """Port of one of the endpoints that its ready line names."""
        return int(self._places[name].rpartition(":")[2])

    def cpu_seconds(self) -> float:
        """Processor time it has used so far."""
        return procfs.cpu_seconds(self.process_id)

    def resident(self) -> procfs.Resident:
        """Its resident size now and at its peak."""
        return procfs.resident(self.process_id)

    def settle(self, *, limit_s: float) -> None:
        """Wait until it has little left to do: under a twentieth of a core for half a second."""
        deadline = time.monotonic() + limit_s
        last = self.cpu_seconds()
        while time.monotonic() < deadline:
            time.sleep(0.5)
            now = self.cpu_seconds()
            if now - last < 0.025:
                return
            last = now

    def log_tail(self) -> str:
        """The end of what it wrote to standard error."""
        if self._log_path is None or not self._log_path.exists():
            return ""
        return self._log_path.read_text(errors="replace")[-LOG_TAIL_CHARS:]

    def _await_ready(self) -> int:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            line = process.stdout.readline()
            if not line:
                status = process.wait()
                raise ServerError(f"ended with status {status} before ready\n{self.log_tail()}")
            words = line.decode(errors="replace").split()
            if words and words[0] == "ready":
                self._places = dict(word.split("=", 1) for word in words[1:] if "=" in word)
                return self.port_of("http")
        raise ServerError(f"no ready line within {READY_TIMEOUT_S:.0f} s\n{self.log_tail()}")

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        METER.end(process.pid)
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def broker_program() -> list[str]:
    """The `delaylog` command: beside this Python, else on the path."""
    beside = Path(sys.executable).parent / "delaylog"
    found = str(beside) if beside.exists() else shutil.which("delaylog")
    if found is None:
        raise ServerError("no `delaylog` command: install the project, or give --server COMMAND")
    return [found]


class Brokers:
    """Starts brokers in temporary folders below one data root."""

    def __init__(self, program: Sequence[str], data_root: Path) -> None:
        self.program = list(program)
        self.data_root = data_root

    def on(self, folder: Path, *options: str) -> ServerProcess:
        """A broker (not started yet) whose data lives in `folder`/data and log beside it."""
        command = [
            *self.program,
            "serve",
            "--data-dir",
            str(folder / "data"),
            "--http",
            "127.0.0.1:0",
            *options,
        ]
        return ServerProcess(command, log_path=folder / "broker.log", metered=True)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder on the data root that is gone afterwards."""
        with TemporaryDirectory(prefix="delaylog-bench-", dir=self.data_root) as name:
            yield Path(name)

    @contextmanager
    def fresh(self, *options: str) -> Iterator[ServerProcess]:
        """A running broker without any data, with more options of `serve`."""
        with self.folder() as folder, self.on(folder, *options) as broker:
            yield broker
