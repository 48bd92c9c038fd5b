"""The chain heads of one hour in memory: loaded on demand, written by jobs, dropped while unused.

The file `second.index` is a cache of the delay index. Heads that the file does not cover are
rebuilt from the rows, and heads of few rows are not written at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from delaylog.storage.hours.hour_files import HourFiles
from delaylog.storage.hours.hour_reader import HourReader
from delaylog.storage.hours.indexes.second_index import SecondIndex, rebuild
from delaylog.storage.layout import HOUR_SECONDS, INDEX_ENTRY_SIZE, SECOND_ENTRY

SECOND_INDEX: Final = "second.index"
_REBUILT_ROWS_MAX: Final = HOUR_SECONDS * SECOND_ENTRY.itemsize // INDEX_ENTRY_SIZE
"""Rows that take no more bytes than the second index of an hour."""


class HourHeads:
    """The second index of one hour."""

    def __init__(
        self, files: HourFiles, reader: HourReader, hour: int, changed: Callable[[bool], None]
    ) -> None:
        """`changed` is called with True when heads come into memory, with False when they leave."""
        self._files = files
        self._reader = reader
        self._hour = hour
        self._changed = changed
        self._index: SecondIndex | None = None
        self._dirty = False
        self._lock = threading.Lock()

    def get(self) -> SecondIndex:
        """The heads, loaded or rebuilt. On the thread that owns the hour."""
        if self._index is None:
            self._keep(*self._load())
        assert self._index is not None, "no flush is committed while its thread loads the heads"
        return self._index

    def load(self) -> None:
        """Load the heads into memory, on any thread; without effect if the hour grows meanwhile."""
        with self._files.reading():
            if self._index is None:
                self._keep(*self._load())

    def _keep(self, index: SecondIndex, dirty: bool) -> None:
        """Use heads that were loaded, unless another thread has loaded them or rows were added."""
        with self._lock:
            if self._index is None and index.covers == self._reader.row_count:
                self._index, self._dirty = index, dirty
                self._changed(True)

    def _load(self) -> tuple[SecondIndex, bool]:
        """The heads, and whether the file differs from them."""
        row_count = self._reader.row_count
        if row_count == 0:
            return SecondIndex(), False
        kept: SecondIndex | None = None
        if self._files.exists(SECOND_INDEX):
            file = self._files.open(SECOND_INDEX)
            kept = SecondIndex.decode(file.pread(file.size(), 0))
        if kept is not None and kept.covers == row_count:
            return kept, False
        return self.rebuild(), True

    def rebuild(self) -> SecondIndex:
        """The second index from the delay index alone (one vectorised pass)."""
        parts = self._reader.scan(1, self._reader.row_count)
        return rebuild([(rows, self._hour) for rows in parts])

    def newest(self, second: int) -> int:
        """The newest row of a second's chain, 0 if it is empty."""
        return int(self.get().newest[second])

    @property
    def loaded(self) -> bool:
        """Whether the heads are in memory."""
        return self._index is not None

    @property
    def dirty(self) -> bool:
        """Whether the heads in memory are newer than the file."""
        return self._dirty

    @property
    def need_file(self) -> bool:
        """Whether heads that are dropped have to be written first.

        Heads of few rows are rebuilt by a read that is no longer than the file would be. A file
        that exists is kept up to date: an old one could cover rows that were cut off, and only the
        file still accounts for rows that compaction removed.
        """
        if not self._dirty:
            return False
        few = self._reader.row_count <= _REBUILT_ROWS_MAX
        return not few or self._files.exists(SECOND_INDEX)

    def replace(self, index: SecondIndex, *, dirty: bool) -> None:
        """Use these heads from now on; `dirty` = the file differs from them."""
        self._index, self._dirty = index, dirty
        self._changed(True)

    def mark_dirty(self) -> None:
        """Note that the heads have changed."""
        self._dirty = True

    def write_job(self) -> Callable[[], None]:
        """A job for any thread: write the second index as it is now.

        The heads may change meanwhile. The job writes a snapshot, since a start trusts the file.
        """
        assert self._index is not None, "heads that have changed are in memory"
        raw = self._index.encode()
        self._dirty = False

        def write() -> None:
            try:
                with self._files.reading():
                    self._files.changed()
                    self._files.open(SECOND_INDEX, create=True).pwritev([raw], 0)
            except BaseException:
                self._dirty = self._index is not None
                raise

        return write

    def drop(self) -> None:
        """Drop the heads, unless they have to be written first; they are loaded again on demand."""
        if not self.need_file:
            self.forget()

    def forget(self) -> None:
        """Drop the heads, written or not."""
        self._index, self._dirty = None, False
        self._changed(False)
