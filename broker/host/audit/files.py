"""The files of the audit log: where lines are appended, how files begin and are removed.

    DATA_DIR/audit/audit-00000000000000000001.jsonl    the oldest has the lowest number

Lines are durable when `append` returns. What a failed append has written is cut before the next
one, because the kernel may have dropped pages of a failed sync. `audit_log` has the thread that
calls this.
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from typing import Final

from delaylog.storage.errors import StorageError
from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.files.whole_files import replace_file

FOLDER: Final = "audit"
FILE_BYTES: Final = 64 << 20
"""A new file begins when the newest has this size: some 160,000 lines."""
FILES_MAX: Final = 100
"""Most files that are kept, 6.4 GB: who needs more ships them to another machine."""
_END_BYTES: Final = 16 << 20
"""Size of the end of a file in which a start looks for what a power cut has left."""
_NAME: Final = re.compile(r"audit-([0-9]{20})\.jsonl")


class AuditFiles:
    """Appends lines. `append` may raise StorageError or OSError, and can be called again."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        file_bytes: int = FILE_BYTES,
        files_max: int = FILES_MAX,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._file_bytes = file_bytes
        self._files_max = files_max
        self._newest = -1
        """Number of the newest file; 0 = there is none; -1 = the folder was not read yet."""
        self._size = 0
        """Size of its durable lines, or `file_bytes`: the next file begins with the next line."""

    def append(self, lines: bytes) -> None:
        """Append whole lines durably."""
        if self._newest < 0:
            self._find_newest()
        if self._size >= self._file_bytes:
            self._begin(self._newest + 1, lines)
            return
        with closing(self._fs.open(self._path(self._newest))) as file:
            if file.size() > self._size:
                file.truncate(self._size)
            file.pwritev([lines], self._size)
            file.fdatasync()
        self._size += len(lines)

    def _path(self, number: int) -> str:
        return f"{self._folder}/audit-{number:020}.jsonl"

    def _numbers(self) -> list[int]:
        names = self._fs.listdir(self._folder)
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def _find_newest(self) -> None:
        is_new = not self._fs.exists(self._folder)
        self._fs.mkdir(self._folder)
        try:
            self._fs.sync_folder(parent_of(self._folder))
        except Exception:
            # Its name may be lost, and a second sync would not bring it back.
            if is_new:
                self._fs.remove_tree(self._folder)
            raise
        self._newest, self._size = max(self._numbers(), default=0), self._file_bytes
        # The process before may have been killed before it did this.
        self._fs.sync_folder(self._folder)
        if self._newest:
            with closing(self._fs.open(self._path(self._newest))) as file:
                size = file.size()
                end = file.pread(min(size, _END_BYTES), max(size - _END_BYTES, 0))
                # A crash may have left part of a line, a power cut zeros where it was not synced.
                if end.endswith(b"\n") and b"\0" not in end:
                    self._size = size

    def _begin(self, number: int, lines: bytes) -> None:
        replace_file(self._fs, self._path(number), [lines])
        self._fs.sync_folder(self._folder)
        self._newest, self._size = number, len(lines)
        # The lines are durable: a file that cannot be removed is tried again with the next.
        with suppress(StorageError, OSError):
            for old in self._numbers()[: -self._files_max]:
                self._fs.unlink(self._path(old))
