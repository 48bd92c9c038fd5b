"""Flushes tails, state pages and second indexes from memory to the files of their hours.

Jobs that write may run on any thread; the loop runs short slices only. Nothing is written before
its frame is committed, and no append crosses the position of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from delaylog.storage.columns import concat_rows, gather
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.delay_hour import DelayHour, Flush
from delaylog.storage.hours.far.far_tier import FarTier
from delaylog.storage.hours.hour_folders import HourFolders
from delaylog.storage.hours.second_index import SecondIndex
from delaylog.storage.hours.state_column import (
    COLUMN_BYTES,
    PAGE_SIZE,
    StateColumn,
    StateRuns,
)
from delaylog.storage.hours.tails import TailChunk, TailPile, sort_loose
from delaylog.storage.work import Work

STATE_BYTES_MAX: Final = 24 << 20
"""Changed state pages in memory before they are written."""
FLUSH_ROWS_MAX: Final = 32_768
"""Rows of one append: about 5 ms of preparation, on the thread that writes them."""
_SLICE_PAGES: Final = 256
"""State pages that are copied in one slice: some of them cost a page fault each."""

_COLUMNS_AT_ONCE: Final = 32
"""State columns of one job. Each job waits for a slice of the loop, however few pages it writes."""

_Taken: TypeAlias = list[tuple[StateColumn, StateRuns]]
"""Copied pages, by column."""


class HourFlusher:
    """Writes the tails and states of one `HourStore`."""

    def __init__(
        self,
        fs: FileSystem,
        pile: TailPile,
        folders: HourFolders,
        far: FarTier,
    ) -> None:
        self._fs = fs
        self._pile = pile
        self._folders = folders
        self._opened = folders.opened
        self._far = far
        self._writes_tails = False
        self.writes_far = False
        """Whether a flush writes rows of far hours."""
        self._written: dict[StateColumn, None] = {}
        """Columns whose files stay open until they are synced."""
        self.replaces = False
        """Whether the files of an hour are being replaced, one after another."""
        self._syncs = 0
        """How many works write second indexes or sync files, beside those that append."""
        self.writes_states = False
        """Whether a flush of states runs: a page that was copied may not be written yet."""
        self.boundary = 0
        """Position of the checkpoint being taken, which no append may straddle; 0 = none."""
        self.state_bytes_max = STATE_BYTES_MAX

    def flush(self, *, upto: int, hour: int | None = None) -> Work:
        """Append tails (frames below `upto`, which must be durable): of all hours, or of `hour`."""
        if hour is None:
            yield from self._flush_far(upto)
        yield from self._flush_tails(upto=upto, hour=hour)

    def _limits(self, upto: int) -> tuple[int, ...]:
        """Positions where appends must end: a checkpoint names whole extents and whole runs."""
        return (self.boundary, upto) if 0 < self.boundary < upto else (upto,)

    def _flush_far(self, upto: int) -> Work:
        while self.writes_far:
            yield 0.001
        self.writes_far = True
        try:
            for limit in self._limits(upto):
                yield from self._far.flush(limit)
        finally:
            self.writes_far = False

    def _flush_tails(self, *, upto: int, hour: int | None = None) -> Work:
        """Append tails of near hours to their files, in slices.

        Yields I/O jobs that any thread may run; every slice of CPU stays small. One flush runs
        at a time: a second one waits by yielding.
        """
        while self._writes_tails:
            yield 0.001
        self._writes_tails = True
        try:
            for limit in self._limits(upto):
                if hour is None:
                    yield from self._sort_loose(limit)
                for which, chunks in self._pile.take(upto=limit, hour=hour):
                    yield from self._flush_hour(which, chunks)
                    if self._opened.crowded:
                        yield from self.make_room()
        finally:
            self._writes_tails = False

    def make_room(self) -> Work:
        """Close the hours opened first: a flush may need more descriptors than there are.

        Not while files are replaced: the second index of the old rows would replace the new one.
        """
        while self.replaces:
            yield 0.001
        self._syncs += 1
        try:
            yield from self._make_room()
        finally:
            self._syncs -= 1

    def _make_room(self) -> Work:
        for folder in self._opened.oldest_heads():
            if folder.heads.need_file:
                yield folder.heads.write_job()
            folder.heads.drop()
        for folder in self._opened.oldest():
            if folder.files.unsynced:
                yield folder.files.sync
            folder.close_idle_files()

    def _sort_loose(self, upto: int) -> Work:
        blocks = self._pile.begin_merge(upto)
        if not blocks:
            return
        box: list[list[tuple[int, TailChunk]]] = []
        yield lambda: box.append(sort_loose(blocks))
        self._pile.end_merge(blocks, box[0])
        yield None

    def _flush_hour(self, hour: int, chunks: list[TailChunk]) -> Work:
        folder = self._folders.hour(hour)
        at = 0
        while at < len(chunks):
            part = [chunks[at]]
            rows = len(chunks[at].rows)
            at += 1
            while at < len(chunks) and rows + len(chunks[at].rows) <= FLUSH_ROWS_MAX:
                part.append(chunks[at])
                rows += len(chunks[at].rows)
                at += 1
            # Load the heads on this thread. The job keeps a reference: the hour may drop them.
            heads = folder.heads.get()
            written: list[Flush] = []
            yield partial(_append, folder, heads, part, written)
            folder.commit_flush(written[0])
            self._pile.drop(hour, part)

    @property
    def dirty_state_bytes(self) -> int:
        """Memory of states that are newer than their files."""
        dirty = self._opened.dirty
        near = PAGE_SIZE * dirty.pages + COLUMN_BYTES * dirty.count
        return self._far.states.changed_bytes + near

    def flush_states(
        self, pages_max: int = 2_048, *, until_committed: Callable[[], Work] | None = None
    ) -> Work:
        """Write the pages that are dirty when the flush reaches their column; then far states.

        A page has the changes of every frame so far, so after the copy `until_committed` waits for
        these frames: a lease on disk whose frame is lost would never end. One flush runs at a time,
        else a page that is still being written would count as written.
        """
        while self.writes_states:
            yield 0.001
        self.writes_states = True
        try:
            yield from self._flush_near_states(pages_max, until_committed)
            yield from self._far.states.flush(until_committed)
        finally:
            self.writes_states = False

    def _flush_near_states(
        self, pages_max: int, until_committed: Callable[[], Work] | None
    ) -> Work:
        # One pass only: random changes may make pages dirty as fast as they are written, and a
        # checkpoint waits for the end of the flush.
        columns = self._opened.dirty.columns()
        while columns:
            count = min(max(self._opened.hours_max - len(self._written), 1), _COLUMNS_AT_ONCE)
            batch, columns = columns[:count], columns[count:]
            for column in batch:
                column.busy = True
            try:
                yield from self._flush_columns(batch, pages_max, until_committed)
            finally:
                for column in batch:
                    column.busy = False
            if len(self._written) >= self._opened.hours_max:
                yield from self._sync_columns()
        self._opened.trim()

    def _flush_columns(
        self,
        columns: list[StateColumn],
        pages_max: int,
        until_committed: Callable[[], Work] | None,
    ) -> Work:
        left = [(column, 0, column.dirty_end) for column in columns]
        while left:
            taken: _Taken = []
            try:
                left = yield from _collect(left, pages_max, taken)
                if not taken:
                    break
                if until_committed is not None:
                    yield from until_committed()
                self._written.update((column, None) for column, _ in taken)
                yield partial(_write, taken)
            except BaseException:
                for column, runs in taken:
                    column.restore(runs)
                raise
            for column, _ in taken:
                column.settle()
                yield None

    def _sync_columns(self) -> Work:
        """Sync written columns before they use more descriptors than hours may."""
        unsynced = [column for column in self._written if column.holds_file]
        for first in range(0, len(unsynced), _COLUMNS_AT_ONCE):
            yield partial(_sync, unsynced[first : first + _COLUMNS_AT_ONCE])
        for column in list(self._written):
            # A column that is being flushed will be written again: it keeps its descriptor.
            if not column.busy and not column.holds_file:
                self._written.pop(column, None)
                self._opened.let_go(column)
                yield None

    def replacing(self, work: Work) -> Work:
        """Run work that replaces files of an hour; meanwhile nothing is appended or synced."""
        while self._writes_tails or self._syncs:
            yield 0.001
        self._writes_tails = self.replaces = True
        try:
            yield from work
        finally:
            self._writes_tails = self.replaces = False

    def sync(self) -> Work:
        """Write second indexes and make every touched file durable, hour by hour."""
        while self.replaces:
            yield 0.001
        self._syncs += 1
        try:
            yield from self._sync()
        finally:
            self._syncs -= 1
        yield from self._far.sync()
        for folder in self._opened.oldest():
            if folder.close_idle_files() and not self.writes_states:
                for column in folder.state_columns:
                    column.settle()

    def _sync(self) -> Work:
        for folder in list((self._opened.files | self._opened.heads).values()):
            if folder.heads.dirty:
                yield folder.heads.write_job()
            if folder.files.unsynced:
                yield folder.files.sync
            if self._opened.crowded:
                folder.close_idle_files()
        yield from self._sync_columns()
        yield lambda: self._fs.sync_folder(self._folders.folder)

    def rest(self, hour: int) -> None:
        """Release the pages that a pass over a far hour's states made resident.

        Not while states are flushed: a page that is still being written would count as written.
        """
        if not self.writes_states:
            self._folders.rest(hour)


def _collect(
    left: list[tuple[StateColumn, int, int]], pages_max: int, taken: _Taken
) -> Generator[None, None, list[tuple[StateColumn, int, int]]]:
    """Copy dirty pages of (column, first page, end), a slice at a time; returns the rest."""
    room = pages_max
    while left and room > 0:
        if taken:
            yield None
        (column, start, stop), *left = left
        part = column.collect(min(room, _SLICE_PAGES), start, stop)
        if not part:
            continue
        if taken and taken[-1][0] is column:
            taken[-1][1].extend(part)
        else:
            taken.append((column, part))
        room -= sum(len(data) for _, _, data in part) // PAGE_SIZE
        start = column.behind(part)
        if start < stop:
            left.insert(0, (column, start, stop))
    return left


def _write(taken: _Taken) -> None:
    for column, runs in taken:
        column.write(runs)


def _sync(columns: list[StateColumn]) -> None:
    for column in columns:
        column.sync()


def _append(
    folder: DelayHour, heads: SecondIndex, part: list[TailChunk], written: list[Flush]
) -> None:
    """Prepare and write one append, on any thread; meanwhile readers find the rows in the tail."""
    rows = concat_rows([chunk.rows for chunk in part])
    data = [_records_of(chunk) for chunk in part]
    flush = folder.prepare(rows, data, part[-1].position, heads)
    folder.write_flush(flush)
    written.append(flush)


def _records_of(chunk: TailChunk) -> bytes | memoryview:
    if chunk.dense:
        return chunk.data
    return gather(
        chunk.data, chunk.rows["offset"].astype(np.int64), chunk.rows["size"].astype(np.int64)
    )
