"""ChildBroker: a real broker as a child process on loopback, for tests, demos and benches.

It starts `delaylog serve`, waits for its ready line, and can end it politely or with SIGKILL. The
one rule: leaving the block kills it, whatever went wrong inside (only a SIGKILL of this program
itself leaves it running). The data folder belongs to the caller; starting again on the same folder
is how recovery is tried.
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
    """The broker ended or stayed silent instead of serving; its last log lines say why."""


class ChildBroker:
    """One broker on one data folder; `port` 0 takes a free one, and keeps it afterwards."""

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        options: Sequence[str] = (),
        program: Sequence[str] | None = None,
    ) -> None:
        """`program` stands for the `delaylog` command, for one that is run inside of another."""
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
        """Where the broker answers, or answered before it was killed."""
        return f"http://{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process is there (it may be hanging, this does not ask)."""
        return self._process is not None and self._process.returncode is None

    @property
    def process_id(self) -> int | None:
        """The id of the running process."""
        return self._process.pid if self.running and self._process else None

    async def start(self, *more: str) -> str:
        """Start it, with `more` options this once; returns its base URL when it is ready."""
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
        """End it with SIGKILL: nothing is flushed, as in a crash. Fine to call when it is gone."""
        await self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, such as SIGSTOP, and go on."""
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> int | None:
        """Ask it to end (SIGTERM) and return its exit status; killed if it takes too long."""
        try:
            await self._end(signal.SIGTERM, STOP_TIMEOUT_S)
        except TimeoutError:
            await self.kill()
        return self._process.returncode if self._process else None

    def log_tail(self) -> str:
        """The end of what the broker logged, over all its starts."""
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
    """The `delaylog` command of the environment that this program runs in."""
    script = Path(sys.executable).parent / "delaylog"
    return [str(script)] if script.exists() else [sys.executable, "-P", "-m", "delaylog.broker"]
