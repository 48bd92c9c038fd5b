"""Scanning: walk the rows of an hour in slices, in its files and its tail.

A job meets each message once, at its origin, which stays where it is for as long as the message is
known; then it looks up where the message is now. So messages that move meanwhile are neither missed
nor met twice. Messages sent after the scan began, by log position, are skipped.

The zone maps of an hour's extents tell which rows of its files can match at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from delaylog.storage.columns import concat_rows, take_rows
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.far.far_tier import FarHour
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.layout import Int64Array, RowArray

RANGE_ROWS: Final = 16_384
SLICE_ROWS: Final = 4_096
_SLICE_PARTS: Final = 512
"""Parts of a tail that are joined for one slice."""

Ranges = list[tuple[int, int]]
"""Numbers of rows: first and last of each range."""


def index_slices(ranges: Ranges) -> Iterator[Int64Array]:
    """The row numbers of ranges, a slice at a time."""
    for first, last in ranges:
        for start in range(first, last + 1, SLICE_ROWS):
            yield np.arange(start, min(start + SLICE_ROWS, last + 1), dtype=np.int64)


def part_slices(parts: list[RowArray], rows_max: int = SLICE_ROWS) -> Iterator[tuple[int, int]]:
    """(first, stop) of the parts for each slice: at least `rows_max` rows, if there are as many."""
    first = 0
    while first < len(parts):
        stop, count = first, 0
        while stop < len(parts) and count < rows_max and stop - first < _SLICE_PARTS:
            count += len(parts[stop])
            stop += 1
        yield first, stop
        first = stop


def walk(
    hours: HourStore, hour: int, ranges: Callable[[DelayHour | FarHour, int], Ranges]
) -> Iterator[RowArray]:
    """Rows of an hour: those of its files in `ranges(folder, last row)`, then all of its tail.

    Ends early if the hour is removed meanwhile.
    """
    if hour not in hours.counts:
        return
    life = hours.counts.life(hour)
    folder = hours.view(hour)
    # Without a pause in between: the tail must begin behind the last row of the files.
    last = hours.flushed(hour)
    parts = [rows for rows, _ in hours.pile.parts(hour)]
    for index in index_slices(ranges(folder, last)):
        if hours.counts.life(hour) != life:
            return
        yield folder.read_rows(index)
    for first, stop in part_slices(parts):
        if hours.counts.life(hour) != life:
            return
        rows = concat_rows(parts[first:stop])
        yield take_rows(rows, np.flatnonzero(rows["global_index"] > last))


# ------------------------------------------------------------------------------------ zone maps


def candidates(
    folder: DelayHour | FarHour,
    last: int,
    *,
    topic: int | None,
    tag_bits: int = 0,
    due_from: int,
    due_to: int,
) -> list[tuple[int, int]]:
    """Ranges (first, last) of rows up to `last` that may be of a topic (None = any), have all the
    bits of a tag, and are due in [due_from, due_to).

    Far hours have no zone maps, so all their rows are candidates.
    """
    if last == 0:
        return []
    if isinstance(folder, FarHour):
        return [(1, last)]
    extents = folder.extents()
    tag = np.uint64(tag_bits)
    first, count = extents["first_index"].astype(np.int64), extents["count"].astype(np.int64)
    mask = extents["due_max"] >= due_from
    mask &= extents["due_min"] < due_to
    if topic is not None:
        mask &= (extents["topic_bits"] & np.uint64(1 << topic % 64)) != 0
    mask &= (extents["tag_bits"] & tag) == tag
    mask &= first <= last
    firsts, lasts = first[mask], np.minimum((first + count - 1)[mask], last)
    if len(firsts) == 0:
        return []
    # Adjacent ranges are merged, so that many small flushes are read at once.
    apart = firsts[1:] != lasts[:-1] + 1
    firsts = firsts[np.concatenate([[True], apart])]
    lasts = lasts[np.concatenate([apart, [True]])]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
