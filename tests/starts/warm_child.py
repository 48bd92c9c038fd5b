"""A ChildBroker whose starts are warm, for tests in a loop that kill brokers again and again.

All but the start is the ChildBroker's own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any, cast

from delaylog.client.child_broker import ChildBroker
from tests.starts.warm import WarmProcess


class WarmChildBroker(ChildBroker):
    """One broker on one data folder, by warm starts that take turns between the starters."""

    _starts = itertools.count()
    tuning: Mapping[str, str] = MappingProxyType({})
    """Of `tests/starts/tuned.py`."""

    async def _begin(self, words: Sequence[str], log: IO[bytes]) -> asyncio.subprocess.Process:
        reading, writing = os.pipe()
        out = asyncio.StreamReader()
        nothing = os.open(os.devnull, os.O_RDONLY)
        process = WarmProcess(
            *words,
            stdin=nothing,
            stdout=writing,
            stderr=log.fileno(),
            environment={**os.environ, **self.tuning},
            turn=next(self._starts),
        )
        os.close(nothing)
        os.close(writing)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(out), os.fdopen(reading, "rb")
        )
        awaited: Any = AwaitedProcess(process, out, transport)
        return cast(asyncio.subprocess.Process, awaited)


class AwaitedProcess:
    """A warm process with what a ChildBroker uses of an asyncio one."""

    def __init__(
        self, process: WarmProcess, stdout: asyncio.StreamReader, reading: asyncio.ReadTransport
    ) -> None:
        self._process = process
        self._reading = reading
        self.pid = process.pid
        self.stdout = stdout

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        try:
            return await asyncio.to_thread(self._process.wait)
        finally:
            self._reading.close()
