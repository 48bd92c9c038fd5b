"""One run of a drill in a folder of its own, which a run that failed leaves behind."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Drill(Protocol):
    """A load over one folder, and what its history says."""

    async def run(self) -> None:
        """All of it, to its end."""

    def report(self) -> tuple[bool, str]:
        """Whether all held, and the page that says so."""

    def pace(self, took_s: float) -> str:
        """How much it was in so many seconds."""


def run_judged(name: str, seed: int, make: Callable[[Path], Drill], *, keep: bool) -> bool:
    """Run it, print its page, keep the folder of a run that failed."""
    folder = Path(tempfile.mkdtemp(prefix=f"delaylog-{name}-"))
    drill = make(folder)
    begun = time.monotonic()
    holds = False
    try:
        asyncio.run(drill.run())
        took_s = time.monotonic() - begun
        holds, page = drill.report()
        print(page)
        print(f"seed {seed}: {drill.pace(took_s)} in {took_s:.1f} s")
    finally:
        if holds and not keep:
            shutil.rmtree(folder)
        else:
            verdict = "kept" if holds else f"FAILED with seed {seed}"
            print(f"{verdict}: data, log and history are in {folder}", flush=True)
    return holds
