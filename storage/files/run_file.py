"""Int64 runs on disk: the overflow of a ready queue. Scratch: made anew at every start.

Values are read back in the blocks they were summed up in, and a block that is not the one written
is an error: a changed ref could name a message that is not due.
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


class RunFile:
    """First in, first out, of int64 values in one file that starts over when it runs empty."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        later: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`later` takes the removal of the file, for whoever must not wait for it.

        Hundreds of megabytes take a file system a tenth of a second. Such a run is not used again.
        """
        self._later = later
        self._fs = fs
        self._path = path
        self._file: File | None = None
        self._head = 0
        self._tail = 0
        self._crcs: list[int] = []
        """Of each block, as far as it has been written."""

    def __len__(self) -> int:
        return self._tail - self._head

    def push(self, values: Int64Array) -> None:
        """Append values behind the last."""
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
            if crc32c(raw[at : at + _BLOCK_BYTES]) != self._crcs[block]:
                raise CorruptionError(
                    "refs that are not the ones written",
                    path=self._path,
                    position=block * _BLOCK_BYTES,
                    detail="a restart makes the file anew; check the disk",
                )
        out = np.frombuffer(raw, "<i8")[self._head - first * BLOCK_VALUES :][:count]
        self._head += count
        if self._head == self._tail:
            self._head = self._tail = 0
            self._crcs.clear()
            # Too full even for that: the next values go over the old ones.
            with suppress(DiskFullError):
                self._file.truncate(0)
        return out.astype(np.int64)

    def close(self) -> None:
        """Close and remove the file, or let that be done later."""
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
