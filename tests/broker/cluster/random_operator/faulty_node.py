"""`delaylog` with a clock and a disk that a test controls: `faulty_node.py FILE serve …`.

FILE is a JSON object: `clock_ms`, by how much the wall clock is off, and `full`, whether the disk
has no space left; SIGUSR2 has it read again. Nothing of the broker knows of this: its clock reads
another wall clock, and the calls that take space fail as those of a full disk do.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any


class Control:
    """What the file says."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.clock_s = 0.0
        self.full = False
        self.read()

    def read(self) -> None:
        """See how things are now."""
        said = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.clock_s = said.get("clock_ms", 0) / 1000
        self.full = said.get("full", False)

    def wall(self) -> float:
        """The wall clock of this node."""
        return time.time() + self.clock_s


def fill_disk(control: Control) -> None:
    """Have calls of files fail that would make one longer, while the disk is said to be full."""
    from delaylog.storage.files import file_system
    from delaylog.storage.files.os_file_system import OsFile, OsFileSystem

    write, allocate, free = OsFile.pwritev, OsFile.allocate, OsFileSystem.free_bytes

    def refuse(file: Any, end: int) -> None:
        if control.full and end > file.size():
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            file_system.raise_disk_error(error, file._path)

    def pwritev(self: Any, buffers: Any, offset: int) -> int:
        refuse(self, offset + sum(memoryview(each).nbytes for each in buffers))
        return write(self, buffers, offset)

    def allocating(self: Any, size: int) -> None:
        refuse(self, size)
        allocate(self, size)

    def free_bytes(self: Any, path: str) -> int:
        return 0 if control.full else free(self, path)

    OsFile.pwritev, OsFile.allocate = pwritev, allocating  # type: ignore[method-assign]
    OsFileSystem.free_bytes = free_bytes  # type: ignore[method-assign]


def main() -> int:
    """Run the command with them."""
    from delaylog.broker.cli import main as delaylog
    from delaylog.broker.host.clock import BrokerClock
    from delaylog.broker.process import parts

    control = Control(Path(sys.argv[1]))

    def look(number: int, frame: FrameType | None) -> None:
        control.read()

    signal.signal(signal.SIGUSR2, look)
    parts.__dict__["BrokerClock"] = partial(BrokerClock, wall=control.wall)
    fill_disk(control)
    return delaylog(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
