"""The real `delaylog` command on a disk whose syncs of the log are slow while a file is there.

python slow_disk.py ARMED serve --data-dir ...
"""

from __future__ import annotations

import os
import sys
import time

from delaylog.broker.cli.main import main
from delaylog.broker.process import parts
from delaylog.storage.files import file_system
from delaylog.storage.files.os_file_system import OsFile, OsFileSystem

SYNC_SECONDS = 1.5


class SlowFile(OsFile):
    """A real file whose syncs may take long."""

    armed = ""

    def fdatasync(self) -> None:
        if "/log/" in self._path and os.path.exists(self.armed):
            time.sleep(SYNC_SECONDS)
        super().fdatasync()


class SlowFileSystem(OsFileSystem):
    """The real file system with slow files."""

    def open(self, path: str, *, create: bool = False) -> file_system.File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return SlowFile(os.open(path, flags, 0o644), path)


if __name__ == "__main__":
    SlowFile.armed = sys.argv[1]
    parts.OsFileSystem = SlowFileSystem
    sys.exit(main(sys.argv[2:]))
