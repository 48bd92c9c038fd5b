"""The rows of all hours: numbers new rows and finds rows, records and states by ref.

The store gives every row its global index (a counter per hour, in log order), answers look-ups from
the tail, the files or the far tier, and keeps the counts that a checkpoint needs. It never reads a
clock: its owner sets the hours that are near (`set_near`). Its parts are `folders`, `flusher` (the
splitter) and `border` (between near and far hours).

A send, its release, the receive that takes it and the ack that ends it ask for the rows, records
and states of one array of refs, one after another. `Whereabouts` caches the hour and row numbers of
the last arrays by identity, so an array becomes read-only when it is looked up.

`find_few` and `put_few` do for few refs of near hours, one by one as integers, what the store does
in columns. The fixed costs of columns are higher than those of a loop over few refs; the callers
decide how many are few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns import (
    by_hour,
    concat_rows,
    consecutive,
    every,
    hours_of,
    only_hour,
    put_rows,
    scatter_back,
    some,
    take_rows,
)
from delaylog.storage.errors import UnknownRefError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.compaction import Removal, compact_hour
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.far.far_border import FarBorder
from delaylog.storage.hours.far.far_tier import FarHour, FarTier
from delaylog.storage.hours.far.sorted_run import keys_of
from delaylog.storage.hours.hour_flusher import HourFlusher
from delaylog.storage.hours.hour_folders import OPEN_HOURS_MAX, HourFolders
from delaylog.storage.hours.hour_table import HourCounts, HourTable
from delaylog.storage.hours.state_column import PIECE_ROWS
from delaylog.storage.hours.state_seal import sealed
from delaylog.storage.hours.tails import HourTail, TailPile
from delaylog.storage.layout import (
    BLANK_STATE,
    DEFAULT_GROUP,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    INDEX_ROW,
    STATE_ENTRY,
    TAG_MASK,
    Int64Array,
    RowArray,
    StateArray,
    StateValues,
    hour_name,
)
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.rows import FewRows, PlacedRows, RowValues
from delaylog.storage.work import IoJob, Work

# --------------------------------------------------------------- where the refs of an array are

KEPT: Final = 4
"""Arrays in the cache: those of a send, a receive and an ack may overlap."""


class Place(NamedTuple):
    """The hour and row numbers of one or more refs."""

    hour: int | None
    """The hour of all refs, if they have the same one."""
    indexes: Int64Array
    """Their row numbers."""
    run: slice | None
    """The row numbers as a slice, if they are consecutive rows of one hour."""


class Whereabouts:
    """A cache of `Place` by array of refs."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: deque[tuple[Int64Array, Place]] = deque(maxlen=KEPT)

    def of(self, refs: Int64Array) -> Place:
        """The place of these refs."""
        for asked, place in self._known:
            if asked is refs:
                return place
        hour, index = only_hour(refs), refs & INDEX_MASK
        run = None
        if hour is not None and consecutive(index):
            run = slice(int(index[0]), int(index[-1]) + 1)
        place = Place(hour, index, run)
        self._keep(refs, place)
        return place

    def note(self, refs: Int64Array, hour: int, index: Int64Array) -> None:
        """Cache the place of refs that were just assigned to the consecutive rows `index`."""
        run = slice(int(index[0]), int(index[-1]) + 1)
        self._keep(refs, Place(hour, index, run))

    def _keep(self, refs: Int64Array, place: Place) -> None:
        refs.flags.writeable = False
        self._known.append((refs, place))


# ------------------------------------------------------------------------------------ the store

NEAR_HOURS: Final = 36
"""Hours from the present one on that have a folder each; later ones are in the far tier.

More than a day, so that a batch with due times over 24 hours, beginning a few hours ahead, has near
hours only. A batch that crosses the border is written to both sides.
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
        self.counts = HourTable()
        self.far = FarTier(fs, f"{folder}/far")
        self.pile = TailPile(self.far.pile)
        self.folders = HourFolders(fs, folder, open_hours_max=open_hours_max)
        self.flusher = HourFlusher(fs, self.pile, self.folders, self.far)
        self.border = FarBorder(
            NEAR_HOURS if near_hours is None else near_hours,
            counts=self.counts,
            pile=self.pile,
            far=self.far,
            folders=self.folders,
            flusher=self.flusher,
        )
        self._where = Whereabouts()

    # ------------------------------------------------------------------ opening

    def recover(
        self,
        counts: Mapping[int, HourCounts],
        position: int,
        epoch: int = 0,
        far: Mapping[str, Any] | None = None,
    ) -> None:
        """Cut every hour to the counts of a checkpoint at `position`, and remove unknown folders.

        `epoch` = the epoch of the checkpoint; `far` = its counts of far hours.
        """
        self.counts.restore(counts, None if far is None else far["hours"])
        if far is not None:
            self.far.restore(far["tier"])
        self.folders.recover(self.counts.near, position, epoch)

    def flushed(self, hour: int) -> int:
        """Number of rows of an hour in its files."""
        if self.counts.is_far(hour):
            return self.border.flushed(hour)
        found = self.folders.by_hour.get(hour)
        return found.row_count if found is not None else 0

    # ------------------------------------------------------------------ rows in

    def number(self, placed: PlacedRows, end_position: int) -> Int64Array:
        """Assign global indexes to rows and add the rows to the tails; returns their refs."""
        rows = placed.rows
        firsts = self.counts.number(placed.hours, placed.starts, end_position)
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
            self._pile_up(placed)
            if len(firsts) == 1:
                self._where.note(refs, placed.hours[0], index)
        return refs

    def number_few(self, few: FewRows, end_position: int) -> None:
        """The same for a few rows, which are made with their indexes."""
        few.number(self.counts.number(few.hours, few.starts, end_position))
        if len(few.hours) == 1 and few.hours[0] < self.counts.far_from:
            self.pile.add_few(few)
        else:
            self._pile_up(few.placed())

    def _pile_up(self, placed: PlacedRows) -> None:
        near = bisect_left(placed.hours, self.counts.far_from)
        if near == len(placed.hours):
            self.pile.add(placed)
        else:
            beyond = np.array(placed.hours[near:], np.int64)
            self.pile.add_mixed(placed, near, self.counts.far_mask(beyond))

    def keep_until(self, refs: Int64Array, end_position: int, keep_until_ms: int) -> None:
        """Keep ended rows that a frame has changed readable until `keep_until_ms`."""
        self.counts.keep(hours_of(refs), end_position, keep_until_ms)

    def touch(self, refs: Int64Array, end_position: int) -> None:
        """Note that a frame has changed states of these rows."""
        if len(refs) == 0:
            return
        only = self._where.of(refs).hour
        if only is not None and only < self.counts.far_from:
            self.counts.near[only].position = end_position
        else:
            hours = hours_of(refs) if only is None else [only]
            self.counts.keep(hours, end_position)

    # ------------------------------------------------------------------ look-ups

    def known(self, refs: Int64Array) -> Int64Array:
        """Mask of the refs whose row number is within the rows of an hour that still exists."""
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

        A row whose epoch tag differs from the ref's belongs to another epoch; see `check_tags`.
        """
        far = self._far_mask(refs)
        if far is None:
            return self._by_hour(refs, self._rows_of_hour, INDEX_ENTRY)
        return self._both(refs, far, self.rows, self.far.read_rows, INDEX_ENTRY)

    def _far_mask(self, refs: Int64Array) -> npt.NDArray[np.bool_] | None:
        """Mask of the refs whose rows are in the far tier; None if there are none."""
        if len(refs) == 0:
            return None
        only = self._where.of(refs).hour
        if only is not None:
            return np.ones(len(refs), np.bool_) if self.counts.is_far(only) else None
        if int(refs.max()) >> HOUR_SHIFT < self.counts.far_from:
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
        """Entries of near and far refs in their order; far ones are read by key."""
        if every(far):
            return read(keys_of(refs))
        out = np.empty(len(refs), dtype)
        put_rows(out, far, read(keys_of(refs[far])))
        put_rows(out, ~far, near(refs[~far]))
        return out

    def check_tags(self, refs: Int64Array, rows: RowArray) -> Int64Array:
        """Mask of the refs whose epoch tag is that of their row."""
        out: Int64Array = rows["epoch_tag"] == (refs >> INDEX_BITS) & TAG_MASK
        return out

    def get_states(self, refs: Int64Array, group: int = DEFAULT_GROUP) -> StateArray:
        """Copies of the state entries of known refs."""

        def read(hour: int, indexes: Int64Array, run: slice | None) -> StateArray:
            return self.folders.hour(hour).states(group).get(indexes, run)

        far = self._far_mask(refs)
        if far is None:
            return self._by_hour(refs, read, STATE_ENTRY)
        return self._both(
            refs,
            far,
            partial(self.get_states, group=group),
            partial(self.far.states.get, group=group),
            STATE_ENTRY,
        )

    def has_state(self, ref: int, group: int = DEFAULT_GROUP) -> bool:
        """Whether one known ref has a state: `get_states` without an array."""
        hour = ref >> HOUR_SHIFT
        if hour not in self.counts.near:
            return bool(self.get_states(np.array([ref], np.int64), group)["state"][0])
        return self.folders.hour(hour).states(group).has_state(ref & INDEX_MASK)

    def put_states(self, refs: Int64Array, entries: StateArray, group: int = DEFAULT_GROUP) -> None:
        """Store state entries, one for all or one each, in memory (see StateColumn)."""
        if len(refs) == 0:
            return
        far = self._far_mask(refs)
        if far is not None:
            each = len(entries) > 1
            mine = take_rows(entries, far) if each else entries
            self.far.states.put(keys_of(refs[far]), sealed(mine), group)
            if not every(far):
                rest = take_rows(entries, ~far) if each else entries
                self.put_states(refs[~far], rest, group)
            return
        only, index, run = self._where.of(refs)
        if only is not None:
            self.folders.hour(only).states(group).put(index, entries, run)
            return
        order, groups = by_hour(refs)
        # Seal all entries at once: each hour may have only a few of the rows.
        entries = sealed(entries)
        each = len(entries) > 1
        if order is not None:
            index = index[order]
            if each:
                entries = take_rows(entries, order)
        for hour, at in groups:
            column = self.folders.hour(hour).states(group)
            column.put_sealed(index[at], entries[at] if each else entries)

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
            return self.folders.hour(hour).read_rows(indexes)
        tail = self.pile.tail(hour)
        if tail is None:
            raise UnknownRefError(f"hour {hour_name(hour)} has no row {last}")
        if first > flushed:
            return tail.rows(indexes, run)
        out = np.empty(len(indexes), INDEX_ENTRY)
        late = indexes > flushed
        put_rows(out, late, tail.rows(indexes[late]))
        put_rows(out, ~late, self.folders.hour(hour).read_rows(indexes[~late]))
        return out

    def records(self, refs: Int64Array, rows: RowArray, *, checked: bool = True) -> bytes:
        """The records of `refs` (whose rows are given), one after another.

        A checksum covers the records of a whole flush, or of 1,024 far rows, which are read for the
        first of them. Without `checked` it is not verified: the caller compares the texts that it
        uses.
        """
        if len(refs) == 0:
            return b""
        far = self._far_mask(refs)
        if far is not None:
            return self._records_of_both(refs, rows, far, checked=checked)
        only, index, run = self._where.of(refs)
        if only is not None:
            flushed = self.flushed(only)
            first, last = _bounds(index, run)
            if last <= flushed:
                return self.folders.hour(only).read_records(rows, checked=checked)
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
                assert tail is not None, "the caller has found the rows of these refs"
                part = at[late]
                sources.append((part, tail.records(index[part], take_rows(rows, part))))
            if not every(late):
                part = at[~late]
                mine = take_rows(rows, part)
                found = self.folders.hour(hour).read_records(mine, checked=checked)
                sources.append((part, found))
        return scatter_back(
            [data for _, data in sources],
            [part for part, _ in sources],
            rows["size"].astype(np.int64),
        )

    def _records_of_both(
        self, refs: Int64Array, rows: RowArray, far: npt.NDArray[np.bool_], *, checked: bool
    ) -> bytes:
        away = self.far.records(keys_of(refs[far]), take_rows(rows, far), checked=checked)
        if every(far):
            return away
        here = self.records(refs[~far], take_rows(rows, ~far), checked=checked)
        sizes = rows["size"].astype(np.int64)
        return scatter_back([away, here], [np.flatnonzero(far), np.flatnonzero(~far)], sizes)

    def view(self, hour: int) -> DelayHour | FarHour:
        """A reader of all rows of an hour, near or far."""
        return FarHour(self, hour) if self.counts.is_far(hour) else self.folders.hour(hour)

    # ------------------------------------------------------------------ compaction

    def compact(
        self, hour: int, removal: Removal, stopping: Callable[[], bool] = lambda: False
    ) -> Work:
        """Remove rows of an hour for good; see `compact_hour`."""
        folder = self.folders.hour(hour)
        return compact_hour(self._fs, folder, self.flusher.replacing, removal, stopping)

    def set_near(self, hours: Iterable[int]) -> None:
        """Set the hours (present and next) that are read through maps; others release theirs."""
        near = frozenset(hours)
        self.folders.set_near(near)
        if near:
            self.border.look_ahead(min(near))

    def remove(self, hour: int) -> IoJob:
        """Remove an ended hour for good; the returned job deletes its files."""
        del self.counts[hour]
        return self.folders.remove(hour)

    def close(self) -> None:
        """Close every file. Unflushed rows are dropped; the log has them."""
        self.folders.close()
        self.far.close()


def _bounds(indexes: Int64Array, run: slice | None) -> tuple[int, int]:
    """The least and the greatest row number."""
    if run is not None:
        return run.start, run.stop - 1
    return int(indexes.min()), int(indexes.max())


# ------------------------------------------------------------------------- few refs as integers


class FoundRow(NamedTuple):
    """A row with its state entry in a group, and its record."""

    ref: int
    raw: Block
    """The bytes of the row."""
    row: RowValues
    entry: StateValues
    record: bytes


def find_few(hours: HourStore, refs: Sequence[int], group: int) -> list[FoundRow] | None:
    """The rows of these refs; None if one is unknown, of a far hour, or not in the state NONE."""
    out: list[FoundRow] = []
    entries: list[StateValues] = []
    hour = first = end = flushed = last = 0
    tail: HourTail | None = None
    for ref in refs:
        index = ref & INDEX_MASK
        if ref >> HOUR_SHIFT != hour:
            hour, end = ref >> HOUR_SHIFT, 0
            counts = hours.counts.near.get(hour)
            if counts is None:
                return None
            folder, tail = hours.folders.hour(hour), hours.pile.tail(hour)
            flushed, last = folder.reader.row_count, counts.rows
            column = folder.states(group)
        if not 1 <= index <= last:
            return None
        if not first <= index < end:
            which = (index - 1) // PIECE_ROWS
            piece, first = column.piece_to_read(which), which * PIECE_ROWS + 1
            end = first + PIECE_ROWS
        entry = BLANK_STATE if piece is None else piece.get_one(index - first)
        if entry.state:
            return None
        entries.append(entry)
        if index > flushed:
            assert tail is not None, "a known row is in the tail or in a file"
            chunk, at = tail.chunk_with(index)
            raw = chunk.raw_row(at)
            row = RowValues._make(INDEX_ROW.unpack(raw))
            record = chunk.data[row.offset : row.offset + row.size]
            out.append(FoundRow(ref, raw, row, entry, bytes(record)))
    if not out and len({each >> HOUR_SHIFT for each in refs}) == 1:
        # All of them are in the files of one hour.
        found = folder.reader.few([each & INDEX_MASK for each in refs])
        if found is not None:
            every = zip(refs, entries, found, strict=True)
            return [FoundRow(each, raw, row, entry, own) for each, entry, (raw, row, own) in every]
    return out if len(out) == len(refs) else list(_in_columns(hours, refs, entries))


def _in_columns(
    hours: HourStore, refs: Sequence[int], entries: Sequence[StateValues]
) -> Iterator[FoundRow]:
    """The same for rows that are scattered over files, or partly in memory: read in columns."""
    column = np.array(refs, np.int64)
    rows = hours.rows(column)
    records, raw, start = hours.records(column, rows), rows.tobytes(), 0
    for k, (ref, entry) in enumerate(zip(refs, entries, strict=True)):
        own = raw[k * INDEX_ENTRY_SIZE : (k + 1) * INDEX_ENTRY_SIZE]
        row = RowValues._make(INDEX_ROW.unpack(own))
        yield FoundRow(ref, own, row, entry, records[start : start + row.size])
        start += row.size


def put_few(
    hours: HourStore, refs: Sequence[int], entries: Sequence[bytes], group: int
) -> dict[int, int]:
    """Store the sealed state entry of each ref in memory; returns the number of refs by hour."""
    by_hour: dict[int, int] = {}
    hour = first = end = 0
    for ref, entry in zip(refs, entries, strict=True):
        index = ref & INDEX_MASK
        if ref >> HOUR_SHIFT != hour:
            hour, end = ref >> HOUR_SHIFT, 0
            column = hours.folders.hour(hour).states(group)
        if not first <= index < end:
            which = (index - 1) // PIECE_ROWS
            piece, first = column.piece_to_change(which), which * PIECE_ROWS + 1
            end = first + PIECE_ROWS
        piece.put_one(index - first, entry)
        by_hour[hour] = by_hour.get(hour, 0) + 1
    return by_hour
