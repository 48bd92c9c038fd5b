"""Queues of int64 values in scratch files: the overflow of ready queues; a start creates new ones.

Values are read in blocks, each with a checksum. A wrong checksum is an error, since a changed ref
could name a message that is not due.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import numpy as np
from crc32c import crc32c

from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.layout import Int64Array

BLOCK_VALUES: Final = 8_192
_BLOCK_BYTES: Final = BLOCK_VALUES * 8
_FREED_BLOCKS: Final = 64
"""Blocks whose values were all taken are freed when there are this many, 4 MiB: a queue that is
never empty keeps its file."""


class ScratchQueue:
    """A queue of int64 values in one file, which is truncated whenever the queue is empty."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        later: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`later` is given a function that removes the file, for callers that must not wait.

        Removing hundreds of megabytes takes a tenth of a second. With `later`, do not use the run
        after `close`.
        """
        self._later = later
        self._fs = fs
        self._path = path
        self._file: File | None = None
        self._head = 0
        self._tail = 0
        self._freed = 0
        """Blocks in front that were freed."""
        self._crcs: list[int] = []
        """The checksum of each later block, as far as it has been written."""

    def __len__(self) -> int:
        return self._tail - self._head

    def push(self, values: Int64Array) -> None:
        """Append values."""
        if self._file is None:
            self._file = self._fs.open(self._path, create=True)
        raw = values.astype("<i8", copy=False).tobytes()
        self._file.pwritev([raw], self._tail * 8)
        view = memoryview(raw)
        while view:
            room = _BLOCK_BYTES - self._tail * 8 % _BLOCK_BYTES
            part, view = view[:room], view[room:]
            if room == _BLOCK_BYTES:
                self._crcs.append(0)
            self._crcs[-1] = crc32c(part, self._crcs[-1])
            self._tail += len(part) // 8

    def pop(self, count: int) -> Int64Array:
        """Take up to `count` values from the front. Raises CorruptionError if they changed."""
        count = min(count, len(self))
        if count == 0 or self._file is None:
            return np.zeros(0, np.int64)
        first, last = self._head // BLOCK_VALUES, (self._head + count - 1) // BLOCK_VALUES
        end = min((last + 1) * _BLOCK_BYTES, self._tail * 8)
        raw = self._file.pread(end - first * _BLOCK_BYTES, first * _BLOCK_BYTES)
        for block in range(first, last + 1):
            at = (block - first) * _BLOCK_BYTES
            if crc32c(raw[at : at + _BLOCK_BYTES]) != self._crcs[block - self._freed]:
                raise CorruptionError(
                    "refs with a wrong checksum",
                    path=self._path,
                    position=block * _BLOCK_BYTES,
                    detail="check the disk; a restart creates the file again",
                )
        out = np.frombuffer(raw, "<i8")[self._head - first * BLOCK_VALUES :][:count]
        self._head += count
        if self._head == self._tail:
            self._head = self._tail = self._freed = 0
            self._crcs.clear()
            # On a disk too full even to truncate, the next values overwrite the old ones.
            with suppress(DiskFullError):
                self._file.truncate(0)
        elif (taken := self._head // BLOCK_VALUES - self._freed) >= _FREED_BLOCKS:
            self._file.punch(self._freed * _BLOCK_BYTES, taken * _BLOCK_BYTES)
            self._freed += taken
            del self._crcs[:taken]
        return out.astype(np.int64)

    def close(self) -> None:
        """Close and remove the file, or have `later` do it."""
        file, self._file = self._file, None
        if file is None:
            return

        def remove() -> None:
            file.close()
            self._fs.unlink(self._path)

        if self._later is None:
            remove()
        else:
            self._later(remove)


class ScratchQueues:
    """Makes runs in one folder, whose files are removed later."""

    def __init__(
        self, fs: FileSystem, folder: str, later: Callable[[Callable[[], None]], None]
    ) -> None:
        """`later` is given functions that remove a file."""
        self._fs = fs
        self._folder = folder
        self._later = later
        self._made = 0

    def __call__(self, topic: int) -> ScratchQueue:
        """A new run for messages of this topic; 0 = of all topics."""
        self._made += 1
        return ScratchQueue(self._fs, f"{self._folder}/{topic}-{self._made}.run", self._later)
