"""The real `delaylog` command of a member whose disk or network fails, for tests' children.

    python troubled_member.py TROUBLES serve --data-dir ...

While the file `full` is in the folder TROUBLES, another program has taken the disk's last byte;
while `slow` is there, each sync of the log takes `SLOW_SECONDS`, and `VERY_SLOW_SECONDS` with
`very-slow`; with `hung` it lasts until that file is gone; once `broken` is there, it ends with EIO.
While `drop-N` is there, no byte of this node reaches node N by TCP; with `hole-N`, no segment of
more than `SEGMENT_BYTES`, nor anything after it on the same connection, as behind a wrong MTU; with
`reset-N`, each connection to N ends with RST. UDP is left alone. Everything else is the real thing:
the same command, node and files.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time
from pathlib import Path

# This is a program: what it needs of the tests is three folders up, behind all packages.
sys.path.append(str(Path(__file__).parents[3]))

from delaylog.broker.cli.main import main
from delaylog.broker.cluster import cluster_node
from delaylog.broker.cluster.peers import transport
from delaylog.broker.cluster.peers.connection import Connection
from delaylog.broker.process import parts
from delaylog.storage.errors import DiskFailedError
from delaylog.storage.files.file_system import File
from tests.starts.tuned import tune
from tests.storage.small_disk import SmallDisk, SmallFile

DISK_BYTES = 256 << 20
SLOW_SECONDS = 0.4
VERY_SLOW_SECONDS = 3.0
SEGMENT_BYTES = 700


class TroubledFile(SmallFile):
    """A file of the log, when that is slow or broken."""

    def __init__(self, fd: int, path: str, disk: TroubledDisk) -> None:
        super().__init__(fd, path, disk)
        self._troubles = disk

    def fdatasync(self) -> None:
        if f"{os.sep}log{os.sep}" in self._path:
            if self._troubles.has("broken"):
                text = os.strerror(errno.EIO)
                raise DiskFailedError(f"fdatasync failed on {self._path}: {text}")
            if self._troubles.has("slow"):
                time.sleep(SLOW_SECONDS)
            while self._troubles.has("hung"):
                time.sleep(0.05)
            if self._troubles.has("very-slow"):
                time.sleep(VERY_SLOW_SECONDS)
        super().fdatasync()


class TroubledDisk(SmallDisk):
    """Looks for trouble whenever it is used."""

    def __init__(self, folder: str, troubles: str) -> None:
        super().__init__(folder, DISK_BYTES)
        self._place = troubles

    def has(self, trouble: str) -> bool:
        return os.path.exists(os.path.join(self._place, trouble))

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return TroubledFile(os.open(path, flags, 0o644), path, self)

    def free_bytes(self, path: str) -> int:
        there = self.has("full")
        if not there:
            self.others = 0
        free = super().free_bytes(path)
        if there and not self.others:
            self.others = free
            return 0
        return free


class TroubledConnection(Connection):
    """A connection whose bytes may not arrive."""

    _troubles = ""
    _stuck = False

    def _write(self, block: bytes | memoryview) -> None:
        assert self._transport is not None
        peer = self._handshake.peer if self._expected is None else self._expected
        if self._has(f"reset-{peer}"):
            there = self._transport.get_extra_info("socket")
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        # Later bytes wait in the receiver's kernel for those that were lost.
        self._stuck |= len(block) > SEGMENT_BYTES and self._has(f"hole-{peer}")
        if self._stuck or self._has(f"drop-{peer}"):
            self.sent_at = self._loop.time()
        else:
            super()._write(block)

    def _has(self, trouble: str) -> bool:
        return os.path.exists(os.path.join(self._troubles, trouble))


if __name__ == "__main__":
    tune()
    troubles, *arguments = sys.argv[1:]
    TroubledConnection._troubles = troubles
    transport.Connection = TroubledConnection  # type: ignore[misc]
    disk = TroubledDisk(arguments[arguments.index("--data-dir") + 1], troubles)
    parts.OsFileSystem = lambda: disk  # type: ignore[misc, assignment]
    cluster_node.OsFileSystem = lambda: disk  # type: ignore[misc, assignment]
    sys.argv = ["delaylog", *arguments]
    sys.exit(main())
