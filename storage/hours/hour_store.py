"""All delay hours and their tails behind one face: numbers rows and finds them.

The store gives every row its global index (a counter per hour that follows the log), answers
look-ups from tail or files without the caller knowing which, and keeps the counts a checkpoint
needs. It never reads a clock: which hours are near is told to it (`set_near`). What waits in memory
goes to the files by its `HourFlusher`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns.gather import scatter_back
from delaylog.storage.columns.questions import by_hour, every, hours_of, some
from delaylog.storage.columns.whole_rows import concat_rows, put_rows, take_rows
from delaylog.storage.errors import UnknownRefError
from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.hours.compaction import Removal, compact_hour
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.far.far_hour import FarHour
from delaylog.storage.hours.far.far_tier import FarTier
from delaylog.storage.hours.far.hour_split import fill_folder
from delaylog.storage.hours.far.run_merge import Keep
from delaylog.storage.hours.far.sorted_run import keys_of
from delaylog.storage.hours.hour_counts import HourCounts
from delaylog.storage.hours.hour_flusher import HourFlusher
from delaylog.storage.hours.hour_removal import HourRemovals
from delaylog.storage.hours.hour_rewrite import settle_rewrite
from delaylog.storage.hours.hour_table import HourTable
from delaylog.storage.hours.open_hours import OpenHours
from delaylog.storage.hours.states.piece import PAGE_SIZE
from delaylog.storage.hours.states.state_column import COLUMN_BYTES
from delaylog.storage.hours.states.state_seal import sealed
from delaylog.storage.hours.tail_pile import TailPile
from delaylog.storage.hours.whereabouts import Whereabouts
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
from delaylog.storage.messages.rows import PlacedRows
from delaylog.storage.work import IoJob, Work

OPEN_HOURS_MAX: Final = 96
"""Hours whose descriptors stay open when the system allows few; each holds up to five."""

NEAR_HOURS = 36
"""Hours from the present one on that have a folder each; later ones are kept by the far tier.

More than a day: a batch with due times over 24 hours, from a few hours ahead on, is then one batch
of near hours. One that crosses the border is written to both sides.
"""


class HourStore:
    """Every hour of a data folder."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        *,
        open_hours_max: int = OPEN_HOURS_MAX,
        near_hours: int | None = None,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._opened = OpenHours[DelayHour](open_hours_max)
        if not fs.exists(folder):
            fs.mkdir(folder)
            # No checkpoint may survive a power cut that takes this name.
            fs.sync_folder(parent_of(folder))
        self._hours: dict[int, DelayHour] = {}
        self._near_hours = NEAR_HOURS if near_hours is None else near_hours
        self.counts = HourTable()
        self.far = FarTier(fs, f"{folder}/far")
        self.pile = TailPile(self.far.pile)
        self._where = Whereabouts()
        self._removals = HourRemovals(fs)
        self._flusher = HourFlusher(fs, folder, self.pile, hour=self.hour, opened=self._opened)
        self._near_until = -1
        self._writes_far = False
        self._splitting = False

    # ------------------------------------------------------------------ opening

    def recover(
        self,
        counts: Mapping[int, HourCounts],
        position: int,
        epoch: int = 0,
        far: Mapping[str, Any] | None = None,
    ) -> None:
        """Cut every hour to the counts of a checkpoint at `position`; unknown folders go.

        `epoch` = the leadership that took the checkpoint; `far` = what it says of far hours.
        """
        near = self.counts
        near.restore(counts, None if far is None else far["hours"])
        if far is not None:
            self.far.restore(far["tier"])
        present = {
            hour
            for name in self._fs.listdir(self._folder)
            if (hour := hour_of_name(name)) is not None
        }
        for hour in sorted(present | set(near.near)):
            known = near.near.get(hour)
            settle_rewrite(self._fs, self._path(hour))
            folder = DelayHour(self._fs, self._path(hour), hour, self._opened)
            may_be_gone = known and known.rows and known.ended
            if may_be_gone and not folder.holds_rows_before(position, epoch):
                # It was removed after this checkpoint, and may have come to be again after the
                # clock was set back; `cut` finishes what is left of it.
                del near[hour]
                known = None
            # A far hour has no folder, but for one that a split after this checkpoint left.
            folder.cut(known.rows if known else 0)
            if known and known.rows:
                self._hours[hour] = folder
                folder.close_files()
                self._opened.trim()

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
        if self.counts.is_far(hour):
            first = self.far.pile.first_index(hour)
            return self.counts[hour].rows if first is None else first - 1
        found = self._hours.get(hour)
        return found.row_count if found is not None else 0

    # ------------------------------------------------------------------ rows in

    def number(self, placed: PlacedRows, end_position: int) -> Int64Array:
        """Give rows their global indexes and take them into the tails; returns their refs."""
        rows = placed.rows
        near = bisect_left(placed.hours, self.counts.far_from)
        firsts: list[int] = []
        for k, hour in enumerate(placed.hours[:near]):
            n = placed.starts[k + 1] - placed.starts[k]
            counts = self.counts.make(hour)
            firsts.append(counts.rows + 1)
            counts.rows += n
            counts.living += n
            counts.position = end_position
        if near < len(placed.hours):
            firsts += self._number_far(placed, near, end_position)
        if len(firsts) == 1:
            index = np.arange(firsts[0], firsts[0] + len(rows), dtype=np.int64)
            high: Int64Array | int = placed.hours[0] << HOUR_SHIFT
        else:
            lengths = np.diff(placed.starts)
            shift = np.array(firsts, np.int64) - np.array(placed.starts[:-1], np.int64)
            index = np.arange(len(rows), dtype=np.int64) + np.repeat(shift, lengths)
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
            self._take_in(placed, near)
            if len(firsts) == 1:
                self._where.note(refs, placed.hours[0], index)
        return refs

    def _number_far(self, placed: PlacedRows, first: int, end_position: int) -> list[int]:
        """First row numbers in the hours of a frame from number `first` on, most of them far."""
        hours = np.array(placed.hours[first:], np.int64)
        lengths = np.diff(placed.starts[first:])
        far = self.counts.far_mask(hours)
        out = np.zeros(len(hours), np.int64)
        if some(far):
            out[far] = self.counts.take_numbers(hours[far], lengths[far], end_position)
        for at in np.flatnonzero(~far).tolist():
            counts, n = self.counts.make(int(hours[at])), int(lengths[at])
            out[at] = counts.rows + 1
            counts.rows += n
            counts.living += n
            counts.position = end_position
        return out.tolist()

    def _take_in(self, placed: PlacedRows, near: int) -> None:
        """Rows wait in the tails of near hours, from hour number `near` on in the far pile."""
        count = len(placed.hours)
        if near == count:
            self.pile.add(placed)
            return
        if near:
            self.pile.add(placed.part(0, near))
        hours = np.array(placed.hours[near:], np.int64)
        far = self.counts.far_mask(hours)
        hours = np.repeat(hours, np.diff(placed.starts[near:]))
        rows = placed.rows[placed.starts[near] :]
        if not every(far):
            for k in np.flatnonzero(~far).tolist():
                self.pile.add(placed.part(near + k, near + k + 1))
            mask = np.repeat(far, np.diff(placed.starts[near:]))
            hours, rows = hours[mask], take_rows(rows, mask)
        if len(rows):
            self.far.pile.add(hours, rows, placed.data, placed.position)

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
        self._count("living", by_hour, times, end_position, keep_until_ms)

    def count_guests(
        self, by_hour: Mapping[int, int], times: int, end_position: int, keep_until_ms: int = 0
    ) -> None:
        """Rows with their origins in hours begin (`times` > 0) or stop to live elsewhere.

        The way to an ended row leads through its origin, which is kept as long as the row.
        """
        self._count("guests", by_hour, times, end_position, keep_until_ms)

    def _count(
        self,
        name: str,
        by_hour: Mapping[int, int],
        times: int,
        end_position: int,
        keep_until_ms: int,
    ) -> None:
        far: list[int] = []
        for hour, n in by_hour.items():
            if self.counts.is_far(hour):
                far.append(hour)
                continue
            counts = self.counts.make(hour)
            setattr(counts, name, getattr(counts, name) + times * n)
            counts.position = max(counts.position, end_position)
            counts.keep_until_ms = max(counts.keep_until_ms, keep_until_ms)
        if far:
            hours = np.array(far, np.int64)
            values = np.array([by_hour[hour] for hour in far], np.int64)
            self.counts.add(name, hours, times * values)
            self.counts.touch(hours, end_position, keep_until_ms)

    def keep_until(self, refs: Int64Array, end_position: int, keep_until_ms: int) -> None:
        """Rows that had ended changed and stay readable for so long."""
        self._count("living", dict.fromkeys(hours_of(refs), 0), 1, end_position, keep_until_ms)

    def touch(self, refs: Int64Array, end_position: int) -> None:
        """Remember that a frame changed states of these rows."""
        if len(refs) == 0:
            return
        only = self._where.of(refs).hour
        if only is not None and only < self.counts.far_from:
            self.counts.near[only].position = end_position
        else:
            hours = hours_of(refs) if only is None else [only]
            self._count("living", dict.fromkeys(hours, 0), 1, end_position, 0)

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
            last = self.counts.row_counts(hours)[which]
        return (index >= 1) & (index <= last)  # type: ignore[return-value]

    def rows(self, refs: Int64Array) -> RowArray:
        """Copies of the index rows of known refs, in their order.

        A row whose epoch tag is not the ref's belongs to another leadership: its `epoch_tag`
        tells, see `check_tags`.
        """
        far = self._far_mask(refs)
        if far is None:
            return self._by_hour(refs, self._rows_of_hour, INDEX_ENTRY)
        return self._both(refs, far, self.rows, self.far.read_rows, INDEX_ENTRY)

    def _far_mask(self, refs: Int64Array) -> npt.NDArray[np.bool_] | None:
        """Which refs are kept by the far tier; None if none is."""
        if len(refs) == 0:
            return None
        greatest = refs[0] if len(refs) == 1 else refs.max()
        if int(greatest) >> HOUR_SHIFT < self.counts.far_from:
            return None
        far = self.counts.far_mask(refs >> HOUR_SHIFT)
        return far if some(far) else None

    def _both(
        self,
        refs: Int64Array,
        far: npt.NDArray[np.bool_],
        near: Callable[[Int64Array], RowArray],
        read: Callable[[Int64Array], RowArray],
        dtype: np.dtype,
    ) -> RowArray:
        """Entries of refs, those of `far` ones by their keys."""
        if every(far):
            return read(keys_of(refs))
        out = np.empty(len(refs), dtype)
        put_rows(out, far, read(keys_of(refs[far])))
        put_rows(out, ~far, near(refs[~far]))
        return out

    def check_tags(self, refs: Int64Array, rows: RowArray) -> Int64Array:
        """Mask of refs that name the row they point at."""
        out: Int64Array = rows["epoch_tag"] == (refs >> INDEX_BITS) & TAG_MASK
        return out

    def get_states(self, refs: Int64Array, group: int = DEFAULT_GROUP) -> StateArray:
        """Copies of the state entries of known refs."""

        def read(hour: int, indexes: Int64Array, run: slice | None) -> StateArray:
            return self.hour(hour).states(group).get(indexes, run)

        far = self._far_mask(refs)
        if far is None:
            return self._by_hour(refs, read, STATE_ENTRY)
        return self._both(
            refs,
            far,
            partial(self.get_states, group=group),
            partial(self.far.get_states, group=group),
            STATE_ENTRY,
        )

    def put_states(self, refs: Int64Array, entries: StateArray, group: int = DEFAULT_GROUP) -> None:
        """Store state entries, one for all or one each, in memory (see StateColumn)."""
        if len(refs) == 0:
            return
        far = self._far_mask(refs)
        if far is not None:
            each = len(entries) > 1
            mine = take_rows(entries, far) if each else entries
            self.far.put_states(keys_of(refs[far]), sealed(mine), group)
            if not every(far):
                rest = take_rows(entries, ~far) if each else entries
                self.put_states(refs[~far], rest, group)
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
        far = self._far_mask(refs)
        if far is not None:
            return self._records_of_both(refs, rows, far)
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

    def _records_of_both(
        self, refs: Int64Array, rows: RowArray, far: npt.NDArray[np.bool_]
    ) -> bytes:
        away = self.far.records(keys_of(refs[far]), take_rows(rows, far))
        if every(far):
            return away
        here = self.records(refs[~far], take_rows(rows, ~far))
        sizes = rows["size"].astype(np.int64)
        return scatter_back([away, here], [np.flatnonzero(far), np.flatnonzero(~far)], sizes)

    def view(self, hour: int) -> DelayHour | FarHour:
        """An hour as those read it who walk through its rows."""
        return FarHour(self, hour) if self.counts.is_far(hour) else self.hour(hour)

    # ------------------------------------------------------------------ flushing

    def flush(self, *, upto: int, hour: int | None = None) -> Work:
        """Append tails (frames below `upto`, which must be durable); see `HourFlusher.tails`.

        Of all hours, unless `hour` is given.
        """
        if hour is None:
            yield from self._flush_far(upto)
        yield from self._flusher.tails(upto=upto, hour=hour)

    def _flush_far(self, upto: int) -> Work:
        while self._writes_far:
            yield 0.001
        self._writes_far = True
        try:
            # A checkpoint names whole runs, so none may straddle its position.
            for limit in (self.boundary, upto) if 0 < self.boundary < upto else (upto,):
                yield from self.far.flush(limit)
        finally:
            self._writes_far = False

    def flush_states(
        self, pages_max: int = 2_048, *, until_committed: Callable[[], Work] | None = None
    ) -> Work:
        """Write the state pages that are dirty; see `HourFlusher.states`."""
        return self._flusher.states(
            pages_max, until_committed=until_committed, far=self.far.flush_states
        )

    def sync(self) -> Work:
        """Write second indexes and make every touched file durable, hour by hour."""
        yield from self._flusher.sync()
        yield from self.far.sync()
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
        """Memory of states that are newer than their files."""
        dirty = self._opened.dirty
        return self.far.changed_bytes + PAGE_SIZE * dirty.pages + COLUMN_BYTES * dirty.count

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
        if near:
            self.look_ahead(min(near))

    # ------------------------------------------------------------------ far hours

    def look_ahead(self, hour: int) -> None:
        """`hour` is the present one: the border of the far tier follows it by `split_work`."""
        last = hour + self._near_hours - 1
        border = self.counts.far_from
        if border <= last + 1 + self._near_hours:
            self.far.shed_below(0)
        elif self.far.shed_below(border):
            # The first time, or after the clock was set back by more than a few hours.
            self.counts.set_border(last + 1)
        self._near_until = last

    @property
    def split_due(self) -> bool:
        """Whether hours have come near that the far tier still keeps."""
        return self.counts.far_from <= self._near_until

    def split_work(self) -> Work:
        """Give folders to the hours that have come near."""
        return self.bring_near(self._near_until)

    def bring_near(self, last: int) -> Work:
        """Give a folder to every far hour up to `last`, oldest first; see hour_split.py."""
        while self._splitting:
            yield 0.001
        self._splitting = True
        try:
            yield from self._flusher.make_room()
            while (hour := self.counts.next_far(last)) is not None:
                if hour > self.counts.far_from:
                    # Hours before it are empty, and near from now on: a frame beside the split
                    # may bring their first rows.
                    self.counts.bring_near(hour - 1)
                self.far.splitting = hour
                yield from self._split(hour)
                yield from self._flusher.make_room()
            if self.counts.far_from <= last:
                self.counts.bring_near(last)
        finally:
            self._splitting, self.far.splitting = False, None

    def _split(self, hour: int) -> Work:
        folder = DelayHour(self._fs, self._path(hour), hour, self._opened)
        # An earlier try may have ended half-way, for lack of space.
        folder.cut(0)
        try:
            flushed = partial(self.flushed, hour)
            yield from fill_folder(self._fs, self.far, folder, flushed)
            while self.far.frozen or self._writes_far or flushed() > folder.row_count:
                yield 0.001
                yield from fill_folder(self._fs, self.far, folder, flushed)
        except BaseException:
            folder.close()
            raise
        # From here to the end nothing yields: look-ups find the hour in one place or the other.
        states = self.far.hour_states(hour)
        chunks = self.far.pile.pop_hour(hour)
        self.counts.bring_near(hour)
        if folder.row_count or states:
            self._hours[hour] = folder
        folder.mapped = hour in self._opened.near
        for group, (indexes, entries) in states.items():
            folder.states(group).put(indexes, entries)
        self.pile.adopt(hour, chunks)
        self.far.leave(hour)

    def merge_due(self) -> bool:
        """Whether runs of the far tier are to be merged."""
        return self.far.merge_due(self.counts)

    def merge_work(self, keep: Keep | None = None) -> Work:
        """Merge runs; `keep` tells which rows are still needed."""
        return self.far.merge_work(self.counts, keep)

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

    def in_use(self, hour: int) -> bool:
        """Whether another thread reads an hour's files, or work in slices keeps rows of it."""
        folder = self._hours.get(hour)
        return folder is not None and not folder.replaceable

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
        self.far.close()


def _bounds(indexes: Int64Array, run: slice | None) -> tuple[int, int]:
    """The least and the greatest of row numbers."""
    if run is not None:
        return run.start, run.stop - 1
    return int(indexes.min()), int(indexes.max())
