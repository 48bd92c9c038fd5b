"""A ChildBroker whose starts are warm, for tests in a loop that kill brokers again and again.

All but the start is the ChildBroker's own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time

from delaylog.client.child_broker import READY_TIMEOUT_S, ChildBroker
from tests.starts.warm import WarmProcess


class WarmChildBroker(ChildBroker):
    """One broker on one data folder, by warm starts that take turns between the starters."""

    _starts = itertools.count()

    async def start(self, *more: str) -> str:
        """Start it, with `more` options this once; returns its base URL when it is ready."""
        assert not self.running, "the broker is already running"
        began = time.monotonic()
        reading, writing = os.pipe()
        out = asyncio.StreamReader()
        nothing = os.open(os.devnull, os.O_RDONLY)
        with self.log_path.open("ab") as log:
            process = WarmProcess(
                *("serve", "--data-dir", str(self.data_dir), "--http", f"{self.host}:{self.port}"),
                *self._options,
                *more,
                stdin=nothing,
                stdout=writing,
                stderr=log.fileno(),
                turn=next(self._starts),
            )
        os.close(nothing)
        os.close(writing)
        self._process = AwaitedProcess(process, out)  # type: ignore[assignment]
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(out), os.fdopen(reading, "rb")
        )
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._await_ready()
        except BaseException:
            await self.kill()
            raise
        finally:
            transport.close()
        self.started_in_s = time.monotonic() - began
        return self.url


class AwaitedProcess:
    """A warm process with what a ChildBroker uses of an asyncio one."""

    def __init__(self, process: WarmProcess, stdout: asyncio.StreamReader) -> None:
        self._process = process
        self.pid = process.pid
        self.stdout = stdout

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait)
