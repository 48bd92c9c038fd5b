"""All delay hours and their tails behind one face: numbers rows and finds them.

The store gives every row its global index (a counter per hour that follows the log), answers
look-ups from tail or files without the caller knowing which, and keeps the counts a checkpoint
needs. It never reads a clock: which hours are near is told to it (`set_near`). What waits in memory
goes to the files by its `HourFlusher`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from delaylog.storage.columns import by_hour, every, hours_of, some
from delaylog.storage.compaction import Removal, compact_hour
from delaylog.storage.delay_hour import DelayHour
from delaylog.storage.errors import UnknownRefError
from delaylog.storage.file_system import FileSystem, parent_of
from delaylog.storage.gather import scatter_back
from delaylog.storage.hour_counts import HourCounts
from delaylog.storage.hour_flusher import HourFlusher
from delaylog.storage.hour_removal import HourRemovals
from delaylog.storage.hour_rewrite import settle_rewrite
from delaylog.storage.hour_tail import TailPile
from delaylog.storage.layout import (
    DEFAULT_GROUP,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    STATE_ENTRY,
    TAG_MASK,
    Int64Array,
    RowArray,
    StateArray,
    hour_name,
    hour_of_name,
)
from delaylog.storage.open_hours import OpenHours
from delaylog.storage.rows import PlacedRows
from delaylog.storage.state_seal import sealed
from delaylog.storage.whereabouts import Whereabouts
from delaylog.storage.whole_rows import concat_rows, put_rows, take_rows
from delaylog.storage.work import IoJob, Work

OPEN_HOURS_MAX: Final = 96
"""Hours whose descriptors stay open when the system allows few; each holds up to five."""


class HourStore:
    """Every hour of a data folder."""

    def __init__(
        self, fs: FileSystem, folder: str, *, open_hours_max: int = OPEN_HOURS_MAX
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._opened = OpenHours(open_hours_max)
        if not fs.exists(folder):
            fs.mkdir(folder)
            # No checkpoint may survive a power cut that takes this name.
            fs.sync_folder(parent_of(folder))
        self._hours: dict[int, DelayHour] = {}
        self.counts: dict[int, HourCounts] = {}
        self.pile = TailPile()
        self._where = Whereabouts()
        self._removals = HourRemovals(fs)
        self._flusher = HourFlusher(
            fs, folder, self._hours, self.pile, hour=self.hour, opened=self._opened
        )

    # ------------------------------------------------------------------ opening

    def recover(self, counts: dict[int, HourCounts], position: int, epoch: int = 0) -> None:
        """Cut every hour to the counts of a checkpoint at `position`; unknown folders go.

        `epoch` = the leadership that took the checkpoint.
        """
        self.counts = counts
        present = {
            hour
            for name in self._fs.listdir(self._folder)
            if (hour := hour_of_name(name)) is not None
        }
        for hour in sorted(present | set(counts)):
            known = counts.get(hour)
            settle_rewrite(self._fs, self._path(hour))
            folder = DelayHour(self._fs, self._path(hour), hour, self._opened)
            may_be_gone = known and known.rows and known.ended
            if may_be_gone and not folder.holds_rows_before(position, epoch):
                # It was removed after this checkpoint, and may have come to be again after the
                # clock was set back; `cut` finishes what is left of it.
                del counts[hour]
                known = None
            folder.cut(known.rows if known else 0)
            if known and known.rows:
                self._hours[hour] = folder
                folder.close_files()
                self._opened.trim()

    def seal_states(self) -> None:
        """Seal the states of a folder whose broker wrote no seals (after `recover`)."""
        for folder in self._hours.values():
            folder.seal_states()

    def _path(self, hour: int) -> str:
        return f"{self._folder}/{hour_name(hour)}"

    def hour(self, hour: int) -> DelayHour:
        """The files of an hour (made on the first flush)."""
        found = self._hours.get(hour)
        if found is None:
            found = self._hours[hour] = DelayHour(self._fs, self._path(hour), hour, self._opened)
            found.mapped = hour in self._opened.near
        found.used = True
        if self._opened.crowded:
            self._opened.trim()
        return found

    def flushed(self, hour: int) -> int:
        """Rows of an hour that stand in its files."""
        found = self._hours.get(hour)
        return found.row_count if found is not None else 0

    # ------------------------------------------------------------------ rows in

    def number(self, placed: PlacedRows, end_position: int) -> Int64Array:
        """Give rows their global indexes and take them into the tails; returns their refs."""
        rows = placed.rows
        firsts = []
        for k, hour in enumerate(placed.hours):
            n = placed.starts[k + 1] - placed.starts[k]
            counts = self.counts.get(hour)
            if counts is None:
                counts = self.counts[hour] = HourCounts()
            firsts.append(counts.rows + 1 - placed.starts[k])
            counts.rows += n
            counts.living += n
            counts.position = end_position
        if len(firsts) == 1:
            index = np.arange(firsts[0], firsts[0] + len(rows), dtype=np.int64)
            high: Int64Array | int = placed.hours[0] << HOUR_SHIFT
        else:
            lengths = np.diff(placed.starts)
            index = np.arange(len(rows), dtype=np.int64) + np.repeat(
                np.array(firsts, np.int64), lengths
            )
            high = np.repeat(np.array(placed.hours, np.int64) << HOUR_SHIFT, lengths)
        rows["global_index"] = index
        if placed.tag is not None:
            refs = index | (high | (placed.tag << INDEX_BITS))
            rows["origin"] = refs
        else:
            refs = index | high | (rows["epoch_tag"].astype(np.int64) << INDEX_BITS)
            fresh = rows["origin"] == 0
            rows["origin"] = refs if every(fresh) else np.where(fresh, refs, rows["origin"])
        if len(rows):
            self.pile.add(placed)
            if len(firsts) == 1:
                self._where.note(refs, placed.hours[0], index)
        return refs

    def count_living(
        self,
        by_hour: Mapping[int, int],
        times: int,
        end_position: int = 0,
        keep_until_ms: int = 0,
    ) -> None:
        """Rows of hours begin (`times` > 0) or stop to live, beyond those that `number` counted.

        A row lives once for each group that has to see it.
        """
        for hour, n in by_hour.items():
            counts = self.counts[hour]
            counts.living += times * n
            counts.position = max(counts.position, end_position)
            counts.keep_until_ms = max(counts.keep_until_ms, keep_until_ms)

    def count_guests(
        self, by_hour: Mapping[int, int], times: int, end_position: int, keep_until_ms: int = 0
    ) -> None:
        """Rows with their origins in hours begin (`times` > 0) or stop to live elsewhere.

        The way to an ended row leads through its origin, which is kept as long as the row.
        """
        for hour, n in by_hour.items():
            counts = self.counts.setdefault(hour, HourCounts())
            counts.guests += times * n
            counts.position = max(counts.position, end_position)
            counts.keep_until_ms = max(counts.keep_until_ms, keep_until_ms)

    def keep_until(self, refs: Int64Array, end_position: int, keep_until_ms: int) -> None:
        """Rows that had ended changed and stay readable for so long."""
        for hour in hours_of(refs):
            counts = self.counts[hour]
            counts.position = end_position
            counts.keep_until_ms = max(counts.keep_until_ms, keep_until_ms)

    def touch(self, refs: Int64Array, end_position: int) -> None:
        """Remember that a frame changed states of these rows."""
        if len(refs):
            only = self._where.of(refs).hour
            for hour in hours_of(refs) if only is None else (only,):
                self.counts[hour].position = end_position

    # ------------------------------------------------------------------ look-ups

    def known(self, refs: Int64Array) -> Int64Array:
        """Which refs (as a mask) lie inside the rows of an hour that still exists."""
        if len(refs) == 0:
            return np.zeros(0, np.bool_)
        only, index, run = self._where.of(refs)
        if only is not None:
            counts = self.counts.get(only)
            last: Int64Array | int = 0 if counts is None else counts.rows
            if run is not None and run.start >= 1 and run.stop - 1 <= last:
                return np.ones(len(refs), np.bool_)
        else:
            hours, which = np.unique(refs >> HOUR_SHIFT, return_inverse=True)
            found = (self.counts.get(hour) for hour in hours.tolist())
            rows = (0 if counts is None else counts.rows for counts in found)
            last = np.fromiter(rows, np.int64, len(hours))[which]
        return (index >= 1) & (index <= last)  # type: ignore[return-value]

    def rows(self, refs: Int64Array) -> RowArray:
        """Copies of the index rows of known refs, in their order.

        A row whose epoch tag is not the ref's belongs to another leadership: its `epoch_tag`
        tells, see `check_tags`.
        """
        return self._by_hour(refs, self._rows_of_hour, INDEX_ENTRY)

    def check_tags(self, refs: Int64Array, rows: RowArray) -> Int64Array:
        """Mask of refs that name the row they point at."""
        out: Int64Array = rows["epoch_tag"] == (refs >> INDEX_BITS) & TAG_MASK
        return out

    def get_states(self, refs: Int64Array, group: int = DEFAULT_GROUP) -> StateArray:
        """Copies of the state entries of known refs."""

        def read(hour: int, indexes: Int64Array, run: slice | None) -> StateArray:
            return self.hour(hour).states(group).get(indexes, run)

        return self._by_hour(refs, read, STATE_ENTRY)

    def put_states(self, refs: Int64Array, entries: StateArray, group: int = DEFAULT_GROUP) -> None:
        """Store state entries, one for all or one each, in memory (see StateColumn)."""
        if len(refs) == 0:
            return
        only, index, run = self._where.of(refs)
        if only is not None:
            self.hour(only).states(group).put(index, entries, run)
            return
        order, groups = by_hour(refs)
        # Sealed once: an hour may have a row or two of them.
        entries = sealed(entries)
        each = len(entries) > 1
        if order is not None:
            index = index[order]
            if each:
                entries = take_rows(entries, order)
        for hour, at in groups:
            self.hour(hour).states(group).put_sealed(index[at], entries[at] if each else entries)

    def _by_hour(
        self,
        refs: Int64Array,
        read: Callable[[int, Int64Array, slice | None], np.ndarray],
        dtype: np.dtype,
    ) -> RowArray:
        if len(refs) == 0:
            return np.zeros(0, dtype)
        only, index, run = self._where.of(refs)
        if only is not None:
            return read(only, index, run)
        order, groups = by_hour(refs)
        if order is None:
            return concat_rows([read(hour, index[at], None) for hour, at in groups])
        index = index[order]
        found = concat_rows([read(hour, index[at], None) for hour, at in groups])
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return take_rows(found, back)

    def _rows_of_hour(self, hour: int, indexes: Int64Array, run: slice | None) -> RowArray:
        flushed = self.flushed(hour)
        first, last = _bounds(indexes, run)
        if last <= flushed:
            return self.hour(hour).read_rows(indexes)
        tail = self.pile.tail(hour)
        if tail is None:
            raise UnknownRefError(f"hour {hour_name(hour)} has no row {last}")
        if first > flushed:
            return tail.rows(indexes, run)
        out = np.empty(len(indexes), INDEX_ENTRY)
        late = indexes > flushed
        put_rows(out, late, tail.rows(indexes[late]))
        put_rows(out, ~late, self.hour(hour).read_rows(indexes[~late]))
        return out

    def records(self, refs: Int64Array, rows: RowArray) -> bytes:
        """The records of `refs` (whose rows are given), one after another."""
        if len(refs) == 0:
            return b""
        only, index, run = self._where.of(refs)
        if only is not None:
            flushed = self.flushed(only)
            first, last = _bounds(index, run)
            if last <= flushed:
                return self.hour(only).read_records(rows)
            if first > flushed and (tail := self.pile.tail(only)) is not None:
                return tail.records(index, rows, run)
        sources: list[tuple[Int64Array, bytes]] = []
        order, groups = by_hour(refs)
        places = np.arange(len(refs)) if order is None else order
        for hour, part_of in groups:
            at = places[part_of]
            late = index[at] > self.flushed(hour)
            if some(late):
                tail = self.pile.tail(hour)
                assert tail is not None, "rows of refs were found before their records"
                part = at[late]
                sources.append((part, tail.records(index[part], take_rows(rows, part))))
            if not every(late):
                part = at[~late]
                sources.append((part, self.hour(hour).read_records(take_rows(rows, part))))
        return scatter_back(
            [data for _, data in sources],
            [part for part, _ in sources],
            rows["size"].astype(np.int64),
        )

    # ------------------------------------------------------------------ flushing

    def flush(self, *, upto: int, hour: int | None = None) -> Work:
        """Append tails (frames below `upto`, which must be durable); see `HourFlusher.tails`."""
        return self._flusher.tails(upto=upto, hour=hour)

    def flush_states(
        self, pages_max: int = 2_048, *, until_committed: Callable[[], Work] | None = None
    ) -> Work:
        """Write the state pages that are dirty; see `HourFlusher.states`."""
        return self._flusher.states(pages_max, until_committed=until_committed)

    def sync(self) -> Work:
        """Write second indexes and make every touched file durable, hour by hour."""
        yield from self._flusher.sync()
        for folder in self._opened.oldest():
            if folder.close_idle_files() and not self._flusher.writes_states:
                for column in folder.state_columns:
                    column.settle()

    @property
    def boundary(self) -> int:
        """Position of a checkpoint in the making: no append of a flush straddles it; 0 = none."""
        return self._flusher.boundary

    @boundary.setter
    def boundary(self, position: int) -> None:
        self._flusher.boundary = position

    @property
    def dirty_state_bytes(self) -> int:
        """Bytes of state pages that are newer than their files."""
        return 4096 * sum(
            column.dirty_pages for hour in self._hours.values() for column in hour.state_columns
        )

    # ------------------------------------------------------------------ compaction

    def compact(
        self, hour: int, removal: Removal, stopping: Callable[[], bool] = lambda: False
    ) -> Work:
        """Remove rows of an hour for good; see `compact_hour`."""
        folder = self.hour(hour)
        return compact_hour(self._fs, folder, self._flusher.replacing, removal, stopping)

    @property
    def near(self) -> frozenset[int]:
        """The hours that are read through maps."""
        return self._opened.near

    # ------------------------------------------------------------------ near hours, ending

    def set_near(self, hours: Iterable[int]) -> None:
        """The hours (now and next) that are read through maps; others give their maps back."""
        near = frozenset(hours)
        for hour in self._opened.near - near:
            if hour in self._hours:
                self._hours[hour].unmap()
        for hour in near:
            if hour in self._hours:
                self._hours[hour].mapped = True
        self._opened.near = near

    def rest(self, hour: int) -> None:
        """Give back what a pass over an hour's states made resident, unless it is near.

        Not while states are written: a page in flight would pass for a written one.
        """
        if (
            hour in self._hours
            and hour not in self._opened.near
            and not self._flusher.writes_states
        ):
            for column in self._hours[hour].state_columns:
                column.settle()

    def forget_pages(self) -> None:
        """Give resident file pages behind the cursor back to the kernel."""
        for hour in self._opened.near:
            if hour in self._hours:
                self._hours[hour].forget_pages()

    def being_read(self, hour: int) -> bool:
        """Whether another thread reads an hour's files, or is about to."""
        folder = self._hours.get(hour)
        return folder is not None and folder.being_read

    def remove(self, hour: int) -> IoJob:
        """Forget an ended hour for good; the job that is returned deletes its files."""
        folder = self._hours.pop(hour, None)
        if folder is not None:
            folder.close()
        del self.counts[hour]
        return self._removals.add(self._path(hour))

    def finish_removals(self) -> None:
        """Delete what such jobs have not deleted yet: the hours may get rows again."""
        self._removals.finish()

    def close(self) -> None:
        """Close every file; what was not flushed is dropped (the log has it)."""
        for folder in self._hours.values():
            folder.close()
        self._hours.clear()


def _bounds(indexes: Int64Array, run: slice | None) -> tuple[int, int]:
    """The least and the greatest of row numbers."""
    if run is not None:
        return run.start, run.stop - 1
    return int(indexes.min()), int(indexes.max())
