"""Read-only mapped pieces of a growing file.

A piece is mapped once the file has reached the piece's end. It is never resized, and never closed
while a view of it exists: callers copy bytes that they keep beyond the turn. Bytes that no whole
piece covers are read with pread, so a short or unfinished file is never accessed through a map.
"""

from __future__ import annotations

from typing import Final

from delaylog.storage.files.file_system import File, Mapping

LOG_PIECE_SIZE: Final = 8 << 20
"""Small enough that all but the last few MiB of a busy hour are mapped: scattered rows of the
unfinished piece cost a pread each, four times a mapped look-up."""
INDEX_PIECE_ROWS: Final = 18 * 4096
"""Rows in an index piece: about 8 MiB, a whole number of rows and of pages."""
RESIDENT_BYTES_MAX: Final = 24 << 20
"""The pages are released once the estimate of the resident ones exceeds this."""
_FAULT_AROUND_BYTES: Final = 65_536
"""A page fault maps the neighbouring pages too, this much in all."""


class MappedPieces:
    """Whole pieces of one file, mapped on demand up to a known size."""

    def __init__(self, file: File, piece_size: int) -> None:
        self._file = file
        self._piece_size = piece_size
        self._pieces: dict[int, Mapping] = {}
        self._touches = 0

    def touched(self, count: int) -> None:
        """Count reads of scattered places; release the pages when many may be resident."""
        self._touches += count
        resident = min(self._touches * _FAULT_AROUND_BYTES, len(self._pieces) * self._piece_size)
        if resident > RESIDENT_BYTES_MAX:
            self.forget()

    def piece(self, number: int, size_known: int) -> memoryview | None:
        """A view of piece `number`, or None while the file has not reached its end."""
        mapping = self._pieces.get(number)
        if mapping is None:
            if (number + 1) * self._piece_size > size_known:
                return None
            mapping = self._file.map_read(number * self._piece_size, self._piece_size)
            self._pieces[number] = mapping
        return memoryview(mapping.buffer)

    def forget(self) -> None:
        """Release the resident pages of every piece."""
        self._touches = 0
        for mapping in self._pieces.values():
            mapping.forget(0, self._piece_size)

    def close(self) -> None:
        """Unmap everything."""
        for mapping in self._pieces.values():
            mapping.close()
        self._pieces.clear()
