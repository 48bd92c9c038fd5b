"""Child processes of the demo: their newest facts, and a way to tell them something.

A child writes one JSON object a line; the newest value of each name is kept. Its errors go straight
to our own standard error. Closing its standard input is the sign to end.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Child:
    """One running script of this folder."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        self._process = process
        self._reading = asyncio.create_task(self._read())

    @property
    def status(self) -> int | None:
        """Its exit status, once it has ended."""
        return self._process.returncode

    def tell(self, **facts: object) -> None:
        """One line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(facts).encode() + b"\n")

    def hang_up(self) -> None:
        """Close its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def ended(self) -> None:
        """Wait for its end and its last word."""
        await self._reading
        await self._process.wait()

    async def kill(self) -> None:
        """End it if it still runs."""
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.facts.update(json.loads(line))


async def spawn(script: str, *arguments: str) -> Child:
    """Start a script that lies beside this one."""
    path = Path(__file__).with_name(script)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(path),
        *arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    return Child(path.stem, process)


async def children_ended(children: Sequence[Child], *, timeout_s: float) -> bool:
    """Whether all ended in time."""
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*(child.ended() for child in children))
    except TimeoutError:
        return False
    return True
