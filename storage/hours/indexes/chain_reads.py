"""Reads chains of one hour's seconds in jobs, so that a cold disk delays only a worker thread.

The jobs of one reader run one after the other, on any thread, and copy the bytes that they read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from delaylog.storage.columns.questions import distinct
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.states.piece import PAGE_ROWS, PAGE_SIZE
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.work import IoJob, ReadJob

SLICE_ROWS: Final = 8_192
"""Approximate number of rows of one job; the loop then processes them in about a millisecond."""
_SLICE_CHAINS: Final = 128
_WARM_GAP_PAGES: Final = 16
_WARM_BYTES: Final = 1 << 20


@dataclass(slots=True)
class ChainSlice:
    """Rows of chains, in ascending order, and the extents whose records are not verified yet."""

    index: Int64Array
    rows: RowArray
    unchecked: list[int]


class ChainReader:
    """Follows chains of one hour, whose files the caller keeps open (`DelayHour.reading`)."""

    def __init__(
        self, fs: FileSystem, folder: DelayHour, chains: Iterable[tuple[int, int]]
    ) -> None:
        """`chains` = the head of each, and the last row that counts."""
        self._fs = fs
        self._folder = folder
        reader = folder.own_reader()
        self._walks: Iterator[list[int]] = (
            part
            for head, last in chains
            if head
            for part in reader.walk(head, last, slice_rows=SLICE_ROWS)
        )
        self._reader = reader
        self._over = False

    def read(self) -> Generator[IoJob, None, ChainSlice | None]:
        """Read the next slice; None after the last one."""
        while not self._over:
            box: list[ChainSlice] = []
            states = [column.path for column in self._folder.state_columns if not column.absent]
            yield ReadJob(partial(self._read, states, box))
            if box:
                return box[0]
        return None

    def _read(self, states: list[str], box: list[ChainSlice]) -> None:
        found: list[int] = []
        for _ in range(_SLICE_CHAINS):
            part = next(self._walks, None)
            if part is None:
                self._over = True
                break
            found += part
            if len(found) >= SLICE_ROWS:
                break
        if found:
            index = np.sort(np.array(found, np.int64))
            rows = self._reader.rows(index)
            for path in states:
                _warm(self._fs, path, index)
            box.append(ChainSlice(index, rows, self._folder.unchecked_records(rows)))


def _warm(fs: FileSystem, path: str, index: Int64Array) -> None:
    """Load the pages of a state column with the states of these rows into the page cache.

    The column itself belongs to the loop, which reads these pages through a map.
    """
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return
    try:
        pages = distinct((index - 1) // PAGE_ROWS)
        cuts = np.flatnonzero(np.diff(pages) > _WARM_GAP_PAGES)
        firsts = pages[np.concatenate([[0], cuts + 1])] * PAGE_SIZE
        ends = (pages[np.concatenate([cuts, [len(pages) - 1]])] + 1) * PAGE_SIZE
        for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
            for at in range(first, end, _WARM_BYTES):
                file.pread(min(_WARM_BYTES, end - at), at)
    finally:
        file.close()
