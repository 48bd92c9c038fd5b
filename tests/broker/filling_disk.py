"""The real `delaylog` command on a small disk that another program fills, for tests' children.

    python filling_disk.py MIB TAKEN serve --data-dir ...

The data folder's file system seems to have so many MiB. While the file TAKEN is there, another
program has taken what was free when it came, to the last byte. Everything else is the real thing:
the same command, node and files.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# This is a program: what it needs of the tests is two folders up, behind all packages.
sys.path.append(str(Path(__file__).parents[2]))

from delaylog.broker.cli.main import main
from delaylog.broker.process import parts
from tests.storage.small_disk import SmallDisk


class FillingDisk(SmallDisk):
    """Looks for the other program whenever it is asked for room."""

    def __init__(self, folder: str, total: int, taken: str) -> None:
        super().__init__(folder, total)
        self._taken = taken

    def free_bytes(self, path: str) -> int:
        there = os.path.exists(self._taken)
        if not there:
            self.others = 0
        free = super().free_bytes(path)
        if there and not self.others:
            self.others = free
            return 0
        return free


if __name__ == "__main__":
    mib, taken, *arguments = sys.argv[1:]
    data_dir = arguments[arguments.index("--data-dir") + 1]
    disk = FillingDisk(data_dir, int(mib) << 20, taken)
    parts.OsFileSystem = lambda: disk  # type: ignore[misc, assignment]
    sys.argv = ["delaylog", *arguments]
    sys.exit(main())
