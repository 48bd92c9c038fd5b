"""The border between near and far hours, which follows the present hour.

Hours that come near leave the far tier: each gets a folder before any of its messages is due, the
oldest first. Its rows are read from every run that has some, completed with tombstones where a
compaction dropped rows, and appended to the folder in row order. Look-ups go on in the far tier
meanwhile. The switch of an hour is one step on the caller's thread, so look-ups find its rows in
exactly one place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Final

import numpy as np

from delaylog.storage.columns import copy_rows, gather, parts_of, put_rows, take_rows
from delaylog.storage.hours.delay_hour import DelayHour, Flush
from delaylog.storage.hours.far.far_tier import FarTier, tombstones
from delaylog.storage.hours.far.run_stack import OpenRuns
from delaylog.storage.hours.far.sorted_run import RunFacts, hour_key
from delaylog.storage.hours.hour_flusher import HourFlusher
from delaylog.storage.hours.hour_folders import HourFolders
from delaylog.storage.hours.hour_table import HourTable
from delaylog.storage.hours.second_index import SecondIndex
from delaylog.storage.hours.tails import TailPile
from delaylog.storage.layout import INDEX_ENTRY, INDEX_MASK, Int64Array, RowArray
from delaylog.storage.work import Work


class FarBorder:
    """Gives folders to far hours that come near."""

    def __init__(
        self,
        near_hours: int,
        *,
        counts: HourTable,
        pile: TailPile,
        far: FarTier,
        folders: HourFolders,
        flusher: HourFlusher,
    ) -> None:
        """`near_hours` = how many hours, counted from the present one, have a folder each."""
        self._near_hours = near_hours
        self._counts = counts
        self._pile = pile
        self._far = far
        self._folders = folders
        self._flusher = flusher
        self._near_until = -1
        self._splitting = False

    def look_ahead(self, hour: int) -> None:
        """Note the present hour; `split_work` then moves the border after it."""
        last = hour + self._near_hours - 1
        border = self._counts.far_from
        if border <= last + 1 + self._near_hours:
            self._far.merges.shed_below(0)
        elif not self._splitting and self._far.merges.shed_below(border):
            # At a start, or after the clock was set back by more than `near_hours`. Not during a
            # split: its end raises the border again, over hours that have got rows meanwhile.
            self._counts.set_border(last + 1)
        self._near_until = last

    @property
    def split_due(self) -> bool:
        """Whether hours are near by now that the far tier still has."""
        return self._counts.far_from <= self._near_until

    def split_work(self) -> Work:
        """Give folders to the hours that have come near."""
        return self.bring_near(self._near_until)

    def bring_near(self, last: int) -> Work:
        """Give a folder to every far hour up to `last`, oldest first."""
        while self._splitting:
            yield 0.001
        self._splitting = True
        try:
            yield from self._flusher.make_room()
            while (hour := self._counts.next_far(last)) is not None:
                if hour > self._counts.far_from:
                    # The far hours before it are empty. They become near now, since a frame that
                    # is applied during the split may bring their first rows.
                    self._counts.bring_near(hour - 1)
                self._far.merges.splitting = hour
                yield from self._split(hour)
                yield from self._flusher.make_room()
            if self._counts.far_from <= last:
                self._counts.bring_near(last)
        finally:
            self._splitting, self._far.merges.splitting = False, None

    def _split(self, hour: int) -> Work:
        folder = self._folders.make(hour)
        # An earlier attempt may have failed half-way for lack of space.
        folder.cut(0)
        try:
            flushed = partial(self.flushed, hour)
            yield from fill_folder(self._far, folder, flushed)
            while self._busy or flushed() > folder.row_count:
                yield 0.001
                yield from fill_folder(self._far, folder, flushed)
        except BaseException:
            folder.close()
            raise
        # From here on nothing yields, so a look-up finds the hour either in the far tier or in
        # its folder.
        states = self._far.states.of_hour(hour)
        chunks = self._far.pile.pop_hour(hour)
        self._counts.bring_near(hour)
        if folder.row_count or states:
            self._folders.add(folder)
        for group, (indexes, entries) in states.items():
            folder.states(group).put(indexes, entries)
        self._pile.adopt(hour, chunks)
        self._far.leave(hour)

    @property
    def _busy(self) -> bool:
        """Whether a checkpoint is being taken or rows of far hours are being flushed."""
        return self._far.merges.frozen or self._flusher.writes_far

    def flushed(self, hour: int) -> int:
        """How many rows of a far hour are in runs."""
        first = self._far.pile.first_index(hour)
        return self._counts[hour].rows if first is None else first - 1


SPLIT_ROWS_MAX: Final = 32_768
"""Rows of one append to the folder, as in a flush."""
SPLIT_BYTES_MAX: Final = 16 << 20
"""Bytes of their records, unless one record has more: they are in memory two or three times."""
_OPEN_MAX: Final = 8


def fill_folder(far: FarTier, folder: DelayHour, flushed: Callable[[], int]) -> Work:
    """Append the rows of a far hour to its folder, from the first one missing to `flushed()`."""
    rows_max = SPLIT_ROWS_MAX
    with closing(OpenRuns(far.fs, far.folder, _OPEN_MAX)) as reader:
        while (last := flushed()) > folder.row_count:
            first = folder.row_count + 1
            stop = min(last, first + rows_max - 1)
            runs = far.runs_of(folder.hour)
            written: list[Flush] = []
            heads = folder.heads.get()
            with far.files.pinned(run.number for run in runs):
                yield partial(_append, reader, folder, heads, runs, (first, stop), written)
            folder.commit_flush(written[0])
            # Of rows that do not fit, few more are read than are appended.
            rows_max = min(SPLIT_ROWS_MAX, 2 * len(written[0].rows))


def _append(
    reader: OpenRuns,
    folder: DelayHour,
    heads: SecondIndex,
    runs: list[RunFacts],
    span: tuple[int, int],
    written: list[Flush],
) -> None:
    rows, records = read_span(reader, folder.hour, runs, span)
    position = max((run.position_last for run in runs), default=0)
    flush = folder.prepare(rows, [records], position, heads)
    folder.write_flush(flush)
    written.append(flush)


def read_span(
    reader: OpenRuns, hour: int, runs: list[RunFacts], span: tuple[int, int]
) -> tuple[RowArray, bytes]:
    """Rows of an hour with their records in row order: the first ones of first..last, as many as
    have `SPLIT_BYTES_MAX` of records, or one. Any thread.
    """
    first, last = span
    base = hour_key(hour)
    rows = tombstones(np.arange(first, last + 1))
    found: list[tuple[RunFacts, int, Int64Array, RowArray]] = []
    for facts in runs:
        run = reader.get(facts, INDEX_ENTRY)
        start, stop = run.span(base + first, base + last)
        if start < stop:
            places = (run.keys_between(start, stop) & INDEX_MASK) - first
            found.append((facts, start, places, run.rows(np.arange(start, stop))))
            put_rows(rows, places, found[-1][3])
    sizes = rows["size"].astype(np.int64)
    rows = take_rows(rows, next(parts_of(sizes, len(sizes), SPLIT_BYTES_MAX)))
    parts: list[bytes] = []
    size = 0
    for facts, start, places, theirs in found:
        count = int(np.searchsorted(places, len(rows)))
        mine = copy_rows(theirs[:count])
        offsets, sizes = mine["offset"].astype(np.int64), mine["size"].astype(np.int64)
        at = np.arange(start, start + count)
        parts.append(reader.get(facts, INDEX_ENTRY).records(at, offsets, sizes))
        mine["offset"] = np.cumsum(sizes) - sizes + size
        size += len(parts[-1])
        put_rows(rows, places[:count], mine)
    sizes = rows["size"].astype(np.int64)
    records = gather(b"".join(parts), rows["offset"].astype(np.int64), sizes)
    return rows, records
