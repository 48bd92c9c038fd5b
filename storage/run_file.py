"""Int64 runs on disk: the overflow of a ready queue. Scratch: made anew at every start."""

from __future__ import annotations

import numpy as np

from delaylog.storage.file_system import File, FileSystem
from delaylog.storage.layout import Int64Array


class RunFile:
    """First in, first out, of int64 values in one file that starts over when it runs empty."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._file: File | None = None
        self._head = 0
        self._tail = 0

    def __len__(self) -> int:
        return self._tail - self._head

    def push(self, values: Int64Array) -> None:
        """Append values behind the last."""
        if self._file is None:
            self._file = self._fs.open(self._path, create=True)
        self._file.pwritev([values.astype("<i8", copy=False).tobytes()], self._tail * 8)
        self._tail += len(values)

    def pop(self, count: int) -> Int64Array:
        """Take up to `count` values from the front."""
        count = min(count, len(self))
        if count == 0 or self._file is None:
            return np.zeros(0, np.int64)
        out = np.frombuffer(self._file.pread(count * 8, self._head * 8), "<i8").astype(np.int64)
        self._head += count
        if self._head == self._tail:
            self._file.truncate(0)
            self._head = self._tail = 0
        return out

    def close(self) -> None:
        """Close and remove the file."""
        if self._file is not None:
            self._file.close()
            self._fs.unlink(self._path)
            self._file = None
