"""What hours keep open: descriptors, chain heads and state columns, within a bound.

The files of one hour's folder (`HourFiles`) are opened on demand, synced together, and closed while
unused. Any thread may open a file, or keep all of them open with `reading`; only the thread that
owns the hour closes them. The files of state columns are not among them.

Its chain heads (`HourHeads`) are loaded on demand, written by jobs, and dropped while unused. The
file `second.index` is a cache of the delay index. Heads that the file does not cover are rebuilt
from the rows, and heads of few rows are not written at all.

Hours register with `OpenHours` when they open a file or load heads. Only the thread that owns the
store closes anything, a few hours whenever an hour is requested (`trim`), by the clock algorithm:
an hour that was used since the last check gets a second chance. An hour with unsynced appends is
closed by the flush that wrote it (see `HourFlusher`), never here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.hours.hour_reader import HourReader
from delaylog.storage.hours.second_index import SecondIndex, rebuild
from delaylog.storage.hours.state_column import DirtyColumns, StateColumn
from delaylog.storage.layout import HOUR_SECONDS, INDEX_ENTRY_SIZE, SECOND_ENTRY

# ------------------------------------------------------------------------ the files of one hour


class HourFiles:
    """Descriptors of one folder."""

    def __init__(self, fs: FileSystem, folder: str, opened: Callable[[], None]) -> None:
        """`opened` is called when a file was opened."""
        self._fs = fs
        self.folder = folder
        self._opened = opened
        self._files: dict[str, File] = {}
        self._unsynced = False
        self._syncing = False
        self._has_new_names = False
        """Whether a name came or went since the folder was last synced."""
        self._readers = 0
        self._readers_lock = threading.Lock()

    def path(self, name: str) -> str:
        """The path of a file."""
        return f"{self.folder}/{name}"

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self._fs.exists(self.path(name))

    def open(self, name: str, *, create: bool = False) -> File:
        """A file, which stays open."""
        file = self._files.get(name)
        if file is None:
            if create and not self.exists(name):
                self._fs.mkdir(self.folder)
                self._has_new_names = True
            fresh = self._fs.open(self.path(name), create=create)
            # Another thread may have opened it meanwhile.
            file = self._files.setdefault(name, fresh)
            if file is not fresh:
                fresh.close()
            self._opened()
        return file

    @property
    def count(self) -> int:
        """Descriptors in use."""
        return len(self._files)

    # ------------------------------------------------------------------ syncing

    def changed(self) -> None:
        """Note that bytes will be written which need a sync."""
        self._unsynced = True

    def renamed(self) -> None:
        """Note that a name may have come or gone: the next sync makes that durable too."""
        self._has_new_names = True

    def exchanged(self) -> None:
        """Note that durable files have replaced the written ones, so no sync is needed."""
        self._unsynced = False

    @property
    def unsynced(self) -> bool:
        """Whether written bytes are not synced yet; until then the files stay open."""
        return self._unsynced or self._syncing

    def sync(self) -> None:
        """Make all files durable. Any thread."""
        with self.reading():
            if self._unsynced:
                self._syncing, self._unsynced = True, False
                try:
                    self._sync()
                except BaseException:
                    # The next sync repeats all of it.
                    self._unsynced = True
                    raise
                finally:
                    self._syncing = False

    def _sync(self) -> None:
        for file in list(self._files.values()):
            file.fdatasync()
        if self._has_new_names:
            # Cleared first: another thread may create a file during the sync.
            self._has_new_names = False
            try:
                self._fs.sync_folder(self.folder)
            except BaseException:
                self._has_new_names = True
                raise

    # ------------------------------------------------------------------ closing

    @property
    def readers(self) -> int:
        """How many threads and jobs are inside `reading`."""
        return self._readers

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the files open and in place: another thread reads or writes them beside the loop."""
        with self._readers_lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._readers_lock:
                self._readers -= 1

    def close_if_idle(self, close: Callable[[], None]) -> bool:
        """Call `close` unless a thread uses the files or bytes are unsynced; return whether."""
        with self._readers_lock:
            idle = self._readers == 0 and not self.unsynced
            if idle:
                close()
        return idle

    def act_alone(self, act: Callable[[], None]) -> bool:
        """Call `act`, inside `reading`, unless others are inside too; return whether.

        No thread enters `reading` meanwhile.
        """
        with self._readers_lock:
            alone = self._readers == 1
            if alone:
                act()
        return alone

    def take(self) -> list[File]:
        """The open files; the caller closes them."""
        files = list(self._files.values())
        self._files.clear()
        return files


# ------------------------------------------------------------------ the chain heads of one hour

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


# ------------------------------------------------------------------------- the bound of a store

HEADS_KEPT_MAX: Final = 1_024
"""Hours whose chain heads stay in memory (28.8 KB each)."""
COLUMNS_KEPT_MAX: Final = 512
"""State columns that stay mapped: each keeps some pages, and bits of the rows it touched."""
_STEP: Final = 4
"""Hours that one `trim` checks: each request for an hour opens one at most."""


class Closable(Protocol):
    """An hour with open files, heads and columns."""

    hour: int
    heads: HourHeads
    used: bool
    """Whether the hour was requested since the last check."""

    def close_idle_files(self) -> bool:
        """Close its files, unless it has unsynced appends; returns whether they are closed."""

    def drop_states(self, group: int) -> None:
        """Drop the state column of a group."""


H = TypeVar("H", bound=Closable)


class OpenHours(Generic[H]):
    """The hours of one store with open descriptors or heads, in the order in which they opened.

    Other threads may register; dict operations are atomic.
    """

    def __init__(self, hours_max: int) -> None:
        self.hours_max = hours_max
        self.files: dict[int, H] = {}
        self.heads: dict[int, H] = {}
        self.columns: dict[StateColumn, tuple[H, int]] = {}
        """State columns in memory, with their hour and group."""
        self.dirty = DirtyColumns[StateColumn]()
        self.near: frozenset[int] = frozenset()
        """Hours that are read all the time: they are never closed."""
        self.grown = False
        """Whether `trim` may have something to do: set with each entry, and while too many stay."""

    @property
    def crowded(self) -> bool:
        """Whether the files, chain heads or state columns exceed their limit."""
        return (
            len(self.files) > self.hours_max
            or len(self.heads) > HEADS_KEPT_MAX
            or len(self.columns) > COLUMNS_KEPT_MAX
        )

    def trim(self) -> None:
        """Close files and columns and forget heads of a few hours, if there are too many."""
        if len(self.files) > self.hours_max:
            for hour in list(islice(self.files.values(), _STEP)):
                if not self._spared(hour) and hour.close_idle_files():
                    continue
                _requeue(self.files, hour)
        if len(self.heads) > HEADS_KEPT_MAX:
            for hour in list(islice(self.heads.values(), _STEP)):
                if not self._spared(hour):
                    hour.heads.drop()
                if hour.heads.loaded:
                    _requeue(self.heads, hour)
        if len(self.columns) > COLUMNS_KEPT_MAX:
            for column, (hour, group) in list(islice(self.columns.items(), _STEP)):
                used, column.used = column.used, False
                if not used and column.idle:
                    hour.drop_states(group)
                else:
                    self.columns.pop(column)
                    self.columns[column] = (hour, group)
        self.grown = self.crowded

    def let_go(self, column: StateColumn) -> None:
        """Drop a column that was just written, if there are too many."""
        if len(self.columns) > COLUMNS_KEPT_MAX and column in self.columns and column.idle:
            hour, group = self.columns[column]
            hour.drop_states(group)

    def _spared(self, hour: H) -> bool:
        used, hour.used = hour.used, False
        return used or hour.hour in self.near

    def oldest(self) -> list[H]:
        """Hours to close, oldest first, so that three quarters of the limit stay open."""
        if len(self.files) <= self.hours_max:
            return []
        open_hours = [hour for hour in list(self.files.values()) if hour.hour not in self.near]
        return open_hours[: len(self.files) - self.hours_max * 3 // 4]

    def oldest_heads(self) -> list[H]:
        """Hours whose heads to drop, oldest first; see `oldest`."""
        if len(self.heads) <= HEADS_KEPT_MAX:
            return []
        with_heads = [hour for hour in list(self.heads.values()) if hour.hour not in self.near]
        return with_heads[: len(self.heads) - HEADS_KEPT_MAX * 3 // 4]


def _requeue(queue: dict[int, H], hour: H) -> None:
    if queue.pop(hour.hour, None) is not None:
        queue[hour.hour] = hour
