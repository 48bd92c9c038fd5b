"""The disk space of a data folder by part, measured at most once a minute, on a thread."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from typing import Final

from delaylog.broker.host.machine import Machine

EVERY_SECONDS: Final = 60.0
"""Measuring asks for the size of each file: a year of hours has thousands of them."""
FILES: Final = "files"
"""The part of files that are in no folder: checkpoints, the reserve, the tick."""
_BLOCK_BYTES: Final = 512


class FolderSizes:
    """The sizes of one data folder."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._measured_s = 0.0
        self._sizes: dict[str, int] = {}
        self.measuring: asyncio.Future[None] | None = None
        """The measurement that was begun last."""

    async def of(self, folder: str) -> dict[str, int]:
        """Allocated bytes by folder in the data folder, as of the last measurement. Only the first
        caller waits for one.
        """
        now_s = self._machine.steady_s()
        if not self._sizes or now_s - self._measured_s > EVERY_SECONDS:
            self._measured_s = now_s
            self.measuring = asyncio.ensure_future(self._measure(folder))
            if not self._sizes:
                await self.measuring
        return self._sizes

    async def _measure(self, folder: str) -> None:
        self._sizes = await self._machine.in_thread(lambda: measure(folder))


def measure(folder: str) -> dict[str, int]:
    """Allocated bytes by folder in `folder`; files that cannot be looked at do not count."""
    sizes: Counter[str] = Counter({FILES: 0})
    for path, _, names in os.walk(folder):
        part = os.path.relpath(path, folder).split(os.sep)[0]
        for name in names:
            with suppress(OSError):
                blocks = os.stat(os.path.join(path, name), follow_symlinks=False).st_blocks
                sizes[FILES if part == os.curdir else part] += blocks * _BLOCK_BYTES
    return dict(sizes)
