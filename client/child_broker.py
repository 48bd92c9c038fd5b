"""ChildBroker: a real broker as a child process on loopback, for tests, demos and benches.

It starts `delaylog serve`, waits for the ready line, and ends the process with SIGTERM or SIGKILL.
Leaving the `async with` block always kills the process; it survives only if this program itself is
killed with SIGKILL. The data folder belongs to the caller. To test recovery, start the broker again
on the same folder.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, Self

from delaylog.client.free_ports import free_port

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
