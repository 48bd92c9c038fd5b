"""The file of all columns, schedules/NUMBER.rows, which a checkpoint names.

It is the blocks one after another, the last one cut to the slots that have been used; the
checkpoint has the crc32c of each. A file is written once, block by block, and never changed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from delaylog.broker.engine.schedules.columns import BLOCK_ROWS, WIDTH, Columns
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.layout import Int64Array
from delaylog.storage.work import IoJob

_ROW_BYTES: Final = WIDTH * 8
_BLOCK_BYTES: Final = BLOCK_ROWS * _ROW_BYTES


class RowsFile(NamedTuple):
    """What a checkpoint says about a file."""

    number: int
    """0: there is no file, since no slot was ever used."""
    slots: int
    crcs: Sequence[int]

    @property
    def name(self) -> str:
        """Its name in the folder of schedules."""
        return f"{self.number}.rows"

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.slots * _ROW_BYTES


NO_ROWS: Final = RowsFile(0, 0, ())


def write_rows(
    fs: FileSystem, folder: str, number: int, columns: Columns, slots: int
) -> Generator[IoJob | float | None, None, RowsFile]:
    """Write the slots that a checkpoint shares, durably, as a `Work` that returns the file."""
    file: list[File] = []
    crcs: list[int] = []

    def begin() -> None:
        file.append(fs.open(f"{folder}/{number}.rows", create=True))

    def write() -> None:
        at = len(crcs)
        raw = columns.shared(at, slots).data
        file[0].pwritev([raw], at * _BLOCK_BYTES)
        crcs.append(crc32c(raw))

    def finish() -> None:
        # An attempt that no checkpoint names may have left more.
        file[0].truncate(slots * _ROW_BYTES)
        file[0].fdatasync()
        fs.sync_folder(folder)

    try:
        yield begin
        for at in range(-(-slots // BLOCK_ROWS)):
            yield write
            columns.release(at)
        yield finish
    finally:
        if file:
            file[0].close()
    return RowsFile(number, slots, crcs)


def read_rows(fs: FileSystem, folder: str, saved: RowsFile) -> Iterator[Int64Array]:
    """The blocks of a file, each (WIDTH, slots). Raises CorruptionError."""
    if not saved.number:
        return
    path = f"{folder}/{saved.name}"
    if not fs.exists(path):
        raise CorruptionError("rows of schedules are missing", path=path, position=0)
    with closing(fs.open(path)) as file:
        for at, crc in enumerate(saved.crcs):
            start = at * _BLOCK_BYTES
            size = min(saved.size - start, _BLOCK_BYTES)
            raw = file.pread(size, start)
            if len(raw) != size or crc32c(raw) != crc:
                raise CorruptionError("damaged rows of schedules", path=path, position=start)
            yield np.frombuffer(raw, "<i8").reshape(WIDTH, -1)
