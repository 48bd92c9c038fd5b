"""A broker with few descriptors, and a watch over those and its memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from delaylog.client.child_broker import ChildBroker
from tests.starts.tuned import tuned

FILES_MAX = 256
_LIMITED = 'ulimit -n "$1"; shift; exec "$@"'
_LOOK_S = 0.05


def limited_broker(data: Path, constants: Mapping[str, float]) -> ChildBroker:
    """`delaylog serve` that may hold 256 descriptors.

    Memory is watched, not limited: RLIMIT_DATA counts what is reserved and never touched.
    """
    limits = ("/bin/sh", "-c", _LIMITED, "sh", str(FILES_MAX))
    options = ("--log-format", "json")
    return ChildBroker(data, program=(*limits, *tuned(constants)), options=options)


class Watch:
    """Looks at a process from time to time."""

    def __init__(self) -> None:
        self.descriptors_max = 0
        self.resident_kib_max = 0

    async def run(self, process_id: int) -> None:
        """Until it is cancelled, or the process has ended."""
        proc = Path(f"/proc/{process_id}")
        with suppress(OSError):
            while True:
                self.descriptors_max = max(self.descriptors_max, len(os.listdir(proc / "fd")))
                self.resident_kib_max = max(self.resident_kib_max, _high_water_kib(proc))
                await asyncio.sleep(_LOOK_S)


def _high_water_kib(proc: Path) -> int:
    lines = (proc / "status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def disk_use(folder: Path) -> tuple[int, int]:
    """(bytes that are allocated, files and folders) of a data folder, but for its reserve."""
    size = count = 0
    for place, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        for name in files:
            if name != "reserve":
                with suppress(FileNotFoundError):
                    size += os.stat(os.path.join(place, name)).st_blocks * 512
    return size, count
