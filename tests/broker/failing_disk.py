"""The real `delaylog` command on a disk that fails, for child processes of tests.

    python failing_disk.py [--busy] KIND PATTERN ARMED serve --data-dir ...

Once the file ARMED is there, operations of that kind (write, sync, read, rename) on paths that
match PATTERN end with EIO; by the kind `slow` syncs take long instead. Everything else is the real
thing: the same command, node and files.
With --busy every turn of the loop, to its very last one, begins a task, as new connections do.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

# This is a program: what it needs of the tests is two folders up, behind all packages.
sys.path.append(str(Path(__file__).parents[2]))

from delaylog.broker.cli.main import main
from delaylog.broker.process import parts
from delaylog.storage.errors import DiskFailedError
from delaylog.storage.files import file_system
from delaylog.storage.files.os_file_system import OsFile, OsFileSystem
from tests.starts.tuned import tune

SYNC_SECONDS = 1.5
"""What a slow sync takes more."""


class Fault:
    """When to fail."""

    def __init__(self, kind: str, pattern: str, armed: str) -> None:
        self._kind = kind
        self._pattern = pattern
        self._armed = armed

    def strike(self, kind: str, path: str) -> None:
        slow = kind == "sync" and self._kind == "slow"
        if not (slow or kind == self._kind) or not fnmatch(path, self._pattern):
            return
        if os.path.exists(self._armed):
            if slow:
                time.sleep(SYNC_SECONDS)
                return
            error = OSError(errno.EIO, os.strerror(errno.EIO))
            if kind == "sync":
                raise DiskFailedError(f"fdatasync failed on {path}: {error.strerror}")
            file_system.raise_disk_error(error, path)


class FailingFile(OsFile):
    """A real file whose calls may fail."""

    def __init__(self, fd: int, path: str, fault: Fault) -> None:
        super().__init__(fd, path)
        self._fault = fault

    def pread(self, size: int, offset: int) -> bytes:
        self._fault.strike("read", self._path)
        return super().pread(size, offset)

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        self._fault.strike("write", self._path)
        return super().pwritev(buffers, offset)

    def fdatasync(self) -> None:
        self._fault.strike("sync", self._path)
        super().fdatasync()


class FailingFileSystem(OsFileSystem):
    """The real file system, until it fails."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def open(self, path: str, *, create: bool = False) -> file_system.File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return FailingFile(os.open(path, flags, 0o644), path, self._fault)

    def rename(self, source: str, target: str) -> None:
        self._fault.strike("rename", target)
        super().rename(source, target)


class BusyNode(parts.ServingNode):
    """A node in whose loop a task always has just begun."""

    def start(self) -> None:
        super().start()
        self._begin(asyncio.get_running_loop())

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.create_task(asyncio.sleep(0))
        loop.call_soon(self._begin, loop)


if __name__ == "__main__":
    if sys.argv[1] == "--busy":
        del sys.argv[1]
        parts.ServingNode = BusyNode  # type: ignore[misc]
    tune()
    kind, pattern, armed, *arguments = sys.argv[1:]
    fault = Fault(kind, pattern, armed)
    parts.OsFileSystem = lambda: FailingFileSystem(fault)  # type: ignore[misc, assignment]
    sys.argv = ["delaylog", *arguments]
    sys.exit(main())
