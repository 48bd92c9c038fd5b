"""Arithmetic on columns of numbers, rows and bytes, in the way that is cheapest for short ones.

At ten messages a turn an engine call makes about a hundred numpy calls, so their fixed cost
matters: `mask.all()` costs 1.1 us, counting 0.4; `np.diff` 2.5 us, one subtraction 1.1.

Structured rows are picked, copied and stored through a view that has no fields: numpy copies
structured values field by field, 300 ns for an index row where plain bytes take 10.

Byte ranges are gathered in one of several ways, fastest first: one slice when the ranges are
contiguous; one strided copy when all sizes and all steps are equal; one fancy index when sizes are
equal and steps are multiples of the size; else a join of slices. All return copied bytes.

`CountColumns` has counts by hour in two sorted columns: eight bytes an hour, where a dictionary
takes a hundred. Hours with a count of zero are absent. An empty table allocates nothing, since
there are many tables and most are empty. Counts of a few hours are added by binary search, those
of many hours by one merge of columns.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from delaylog.storage.layout import HOUR_SHIFT, Int64Array
from delaylog.storage.messages.batch import Block

# --------------------------------------------------------------------- predicates and groupings

Mask = npt.NDArray[np.bool_]


def every(mask: npt.NDArray[Any]) -> bool:
    """Whether all values are true; True for an empty column."""
    return int(np.count_nonzero(mask)) == mask.size


def some(mask: npt.NDArray[Any]) -> bool:
    """Whether any value is true."""
    return int(np.count_nonzero(mask)) > 0


def alike(column: npt.NDArray[Any]) -> bool:
    """Whether all values equal the first one; True for an empty column."""
    return column.size < 2 or every(column == column[0])


def distinct(values: Int64Array) -> Int64Array:
    """The distinct values, ascending. `np.unique` hashes, which costs ten times as much."""
    if len(values) < 2:
        return values.copy()
    ordered = np.sort(values)
    fresh = np.empty(len(ordered), np.bool_)
    fresh[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh]


def grouped(values: Int64Array) -> Iterator[tuple[int, Int64Array]]:
    """(value, its places, ascending) for each distinct value, with one sort for all of them."""
    if alike(values):
        if len(values):
            yield int(values[0]), np.arange(len(values))
        return
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(values)]
    for first, stop in itertools.pairwise(bounds):
        yield int(ordered[first]), order[first:stop]


def among(values: Int64Array, wanted: Int64Array) -> Mask:
    """Which values are among the wanted ones, at a third of the cost of `np.isin`."""
    if len(wanted) == 0:
        return np.zeros(len(values), np.bool_)
    ordered = np.sort(wanted)
    at = np.searchsorted(ordered, values)
    at[at == len(ordered)] = 0
    found: Mask = ordered[at] == values
    return found


def rising(column: Int64Array) -> bool:
    """Whether every value is greater than the one before it."""
    return every(column[1:] > column[:-1])


def consecutive(column: Int64Array) -> bool:
    """Whether every value is the one before it plus one. The column must not be empty."""
    if len(column) == 1:
        return True
    return int(column[-1]) - int(column[0]) + 1 == len(column) and every(
        column[1:] - column[:-1] == 1
    )


def only_hour(refs: Int64Array) -> int | None:
    """The hour of all these refs, or None when they have several hours or there are no refs."""
    if len(refs) < 2:
        return int(refs[0]) >> HOUR_SHIFT if len(refs) else None
    return None if some((refs ^ refs[0]) >> HOUR_SHIFT) else int(refs[0]) >> HOUR_SHIFT


def per_hour(refs: Int64Array) -> dict[int, int]:
    """How many of the refs are in each hour, without hours that have none."""
    if len(refs) == 0:
        return {}
    only = only_hour(refs)
    if only is not None:
        return {only: len(refs)}
    found, lengths = np.unique(refs >> HOUR_SHIFT, return_counts=True)
    return dict(zip(found.tolist(), lengths.tolist(), strict=True))


def guests_per_hour(refs: Int64Array, origins: Int64Array) -> dict[int, int]:
    """How many of the rows are in another hour than their origins, by the hour of the origin."""
    if refs is origins:
        return {}
    away = (refs ^ origins) >> HOUR_SHIFT != 0
    return per_hour(origins[away]) if some(away) else {}


def hours_of(refs: Int64Array) -> list[int]:
    """The distinct hours of refs, ascending."""
    only = only_hour(refs)
    return distinct(refs >> HOUR_SHIFT).tolist() if only is None else [only]


def by_hour(refs: Int64Array) -> tuple[Int64Array | None, list[tuple[int, slice]]]:
    """(the order that sorts refs by hour, or None if they are sorted; each hour and its slice)."""
    hours = refs >> HOUR_SHIFT
    order: Int64Array | None = None
    if some(hours[1:] < hours[:-1]):
        low = int(hours.min())
        # 16-bit keys sort in linear time; 65,536 hours are seven years.
        key = (hours - low).astype(np.uint16) if int(hours.max()) - low < 1 << 16 else hours
        order = np.argsort(key, kind="stable")
        hours = hours[order]
    cuts = (np.flatnonzero(hours[1:] != hours[:-1]) + 1).tolist()
    starts = [0, *cuts]
    slices = map(slice, starts, [*cuts, len(refs)])
    return order, list(zip(hours[starts].tolist(), slices, strict=True))


# --------------------------------------------------------------- structured rows as plain bytes

Rows = TypeVar("Rows", bound=npt.NDArray[Any])
Places: TypeAlias = Int64Array | Mask | slice


@cache
def _void(size: int) -> np.dtype[np.void]:
    return np.dtype(f"V{size}")


def _plain(rows: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    return rows.view(_void(rows.dtype.itemsize))


def _numbers(at: Places) -> Int64Array | slice:
    if not isinstance(at, slice) and at.dtype == np.bool_:
        return np.flatnonzero(at)
    return cast("Int64Array | slice", at)


def take_rows(rows: Rows, at: Places) -> Rows:
    """A copy of `rows[at]`; `at` = places, a mask or a slice."""
    at = _numbers(at)
    picked = _plain(rows)[at]
    return (picked.copy() if isinstance(at, slice) else picked).view(rows.dtype)  # type: ignore[return-value]


def copy_rows(rows: Rows) -> Rows:
    """A copy of all rows."""
    return _plain(rows).copy().view(rows.dtype)  # type: ignore[return-value]


def put_rows(out: npt.NDArray[Any], at: Places, rows: npt.NDArray[Any]) -> None:
    """`out[at] = rows`, with one row for each place or one for all."""
    assert out.dtype == rows.dtype, "rows of one layout"
    if isinstance(at, slice) and len(rows) == 1:
        # Repeating a row as bytes takes a third of the time that numpy takes.
        count = len(range(*at.indices(len(out))))
        _plain(out)[at] = np.frombuffer(rows.tobytes() * count, _void(rows.dtype.itemsize))
    else:
        _plain(out)[_numbers(at)] = _plain(rows)


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """A copy of all parts, one after another."""
    if len(parts) == 1:
        return copy_rows(parts[0])
    return np.concatenate([_plain(part) for part in parts]).view(parts[0].dtype)  # type: ignore[return-value]


# ---------------------------------------------------------------------------------- byte ranges


def gather(block: Block, starts: Int64Array, sizes: Int64Array) -> bytes:
    """The ranges [start, start + size) of `block`, one after another."""
    n = len(starts)
    if n == 0:
        return b""
    first, size = int(starts[0]), int(sizes[0])
    if n == 1:
        return bytes(block[first : first + size])
    if every(starts[1:] == starts[:-1] + sizes[:-1]):
        return bytes(block[first : int(starts[-1]) + int(sizes[-1])])
    if size > 0 and every(sizes == size):
        step = int(starts[1]) - first
        if step > 0 and every(starts[1:] - starts[:-1] == step):
            # The same part of records of one size, as for bodies behind ids of one size.
            last = first + (n - 1) * step + size
            window = np.frombuffer(block, np.uint8, last - first, first)
            return as_strided(window, (n, size), (step, 1), writeable=False).tobytes()
        if every((starts - first) % size == 0):
            phase = first % size
            whole = (len(block) - phase) // size
            table = np.frombuffer(block, np.uint8, whole * size, phase).reshape(whole, size)
            return table[(starts - phase) // size].tobytes()
    view = memoryview(block)
    ends = (starts + sizes).tolist()
    return b"".join([view[a:b] for a, b in zip(starts.tolist(), ends, strict=True)])


def join_ranges(
    views: Sequence[memoryview | bytes], starts: Int64Array, sizes: Int64Array
) -> bytes:
    """Range k of `views[k]` for every k, one after another: one pass over ranges of many sizes."""
    ends = (starts + sizes).tolist()
    return b"".join([v[a:b] for v, a, b in zip(views, starts.tolist(), ends, strict=True)])


def read_spans(
    pread: Callable[[int, int], bytes], starts: Int64Array, sizes: Int64Array, *, gap: int
) -> bytes:
    """Ranges of a file, one after another, with few reads: neighbours within `gap` share one."""
    if len(starts) == 0:
        return b""
    ends = starts + sizes
    low, high = int(starts.min()), int(ends.max())
    total = int(sizes.sum())
    if high - low <= 2 * total + gap:
        return gather(pread(high - low, low), starts - low, sizes)
    order = np.argsort(starts, kind="stable")
    sorted_starts, sorted_ends = starts[order], ends[order]
    reach = np.maximum.accumulate(sorted_ends)
    cuts = np.flatnonzero(sorted_starts[1:] > reach[:-1] + gap) + 1
    firsts = [0, *cuts.tolist()]
    lasts = [*(cuts - 1).tolist(), len(order) - 1]
    parts = []
    shift = np.empty(len(order), np.int64)
    at = 0
    for a, b in zip(firsts, lasts, strict=True):
        start, end = int(sorted_starts[a]), int(reach[b])
        parts.append(pread(end - start, start))
        shift[a : b + 1] = at - start
        at += end - start
    moved = np.empty(len(order), np.int64)
    moved[order] = sorted_starts + shift
    return gather(b"".join(parts), moved, sizes)


def parts_of(sizes: Int64Array, rows_max: int, bytes_max: int) -> Iterator[slice]:
    """Rows with records of these sizes, in parts of at most `rows_max` rows and `bytes_max` bytes;
    a row with more is a part.
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        fit = int(np.searchsorted(ends, before + bytes_max, side="right"))
        stop = min(max(fit, start + 1), start + rows_max, len(sizes))
        yield slice(start, stop)
        start = stop


def scatter_back(parts: Sequence[bytes], places: Sequence[Int64Array], sizes: Int64Array) -> bytes:
    """Ranges that were gathered in groups, in their original order again.

    `places[k]` lists the ranges that `parts[k]` contains, one after another.
    """
    if len(parts) == 1:
        return parts[0]
    starts = np.empty(len(sizes), np.int64)
    base = 0
    for part, place in zip(parts, places, strict=True):
        ends = np.cumsum(sizes[place])
        starts[place] = base + ends - sizes[place]
        base += len(part)
    return gather(b"".join(parts), starts, sizes)


# ------------------------------------------------------------------------------- counts by hour

MERGE_MIN: Final = 16
"""From this number of hours on, a merge of columns is faster than a search for each."""
RUN_MAX: Final = 64
"""Up to this number of hours that are neighbours in the table, as those of a batch over one day
are, adding one by one is faster than a merge."""
_U32: Final = "I"
assert array(_U32).itemsize == 4, "hours and counts have 32 bits each"
_PAIR: Final = struct.Struct("<qq")
_NONE: Final = array(_U32)
"""The columns of every empty table: shared, never changed."""


class CountColumns(Mapping[int, int]):
    """Positive counts by hour, in ascending order of hours."""

    __slots__ = ("_counts", "_hours")

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._hours = self._counts = _NONE
        if counts:
            self.add(counts, 1)

    def __len__(self) -> int:
        return len(self._hours)

    def __iter__(self) -> Iterator[int]:
        return iter(self._hours.tolist())

    def __getitem__(self, hour: int) -> int:
        at = bisect_left(self._hours, hour)
        if at == len(self._hours) or self._hours[at] != hour:
            raise KeyError(hour)
        return self._counts[at]

    def items(self) -> ItemsView[int, int]:
        """Pairs, without a search for each."""
        return _Pairs(self)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """The same pairs as an iterator over copies: the table may change meanwhile."""
        return zip(self._hours.tolist(), self._counts.tolist(), strict=True)

    def columns(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(hours, counts), as copies."""
        hours = np.array(self._hours, np.uint32)
        return hours.astype(np.int64), np.array(self._counts, np.uint32).astype(np.int64)

    def append_to(self, hours: array[int], counts: array[int]) -> None:
        """Append the pairs to two columns of 32 bits, which join those of many tables."""
        hours += self._hours
        counts += self._counts

    def add(self, counts: Mapping[int, int], times: int) -> None:
        """Add the counts of some hours, multiplied by `times`; no sum may fall below zero."""
        if len(counts) < MERGE_MIN:
            for hour, n in counts.items():
                if n:
                    self._add(hour, times * n)
        elif len(counts) > RUN_MAX or times < 0 or not self._add_to_run(counts, times):
            self._merge(counts, times)

    def _add_to_run(self, counts: Mapping[int, int], times: int) -> bool:
        """Add to hours that are neighbours in the table in this order; False if they are not."""
        at = bisect_left(self._hours, next(iter(counts)))
        if self._hours[at : at + len(counts)] != array(_U32, counts):
            return False
        for place, n in enumerate(counts.values(), at):
            self._counts[place] += times * n
        return True

    def _add(self, hour: int, n: int) -> None:
        hours = self._hours
        at = bisect_left(hours, hour)
        if at < len(hours) and hours[at] == hour:
            total = self._counts[at] + n
            if total:
                self._counts[at] = total
            else:
                del hours[at], self._counts[at]
            return
        if hours is _NONE:
            hours = self._hours = array(_U32)
            self._counts = array(_U32)
        hours.insert(at, hour)
        self._counts.insert(at, n)

    def _merge(self, counts: Mapping[int, int], times: int) -> None:
        hours = np.fromiter(counts, np.int64, len(counts))
        added = np.fromiter(counts.values(), np.int64, len(counts)) * times
        mine = np.frombuffer(self._hours, np.uint32)
        at = mine.searchsorted(hours)
        if int(at.max()) < len(mine) and every(mine[at] == hours):
            # The usual case: all hours are in the table, and keep a count above zero.
            kept = np.frombuffer(self._counts, np.uint32)
            sums = kept[at] + added
            if int(sums.min()) > 0:
                kept[at] = sums
                return
        all_hours = np.concatenate((mine.astype(np.int64), hours))
        union, place = np.unique(all_hours, return_inverse=True)
        sums = np.zeros(len(union), np.int64)
        sums[place[: len(mine)]] = np.frombuffer(self._counts, np.uint32)
        sums[place[len(mine) :]] += added
        assert not len(sums) or int(sums.min()) >= 0, "no count falls below zero"
        left = sums != 0
        if not every(left):
            union, sums = union[left], sums[left]
        self._hours, self._counts = _column(union), _column(sums)

    def pack(self) -> bytes:
        """The bytes for a checkpoint: pairs of hour and count, as int64."""
        if not len(self._hours):
            return b""
        return np.column_stack(self.columns()).astype("<i8").tobytes()

    @classmethod
    def unpack(cls, raw: bytes) -> CountColumns:
        """The table from a checkpoint."""
        out = cls()
        if raw:
            # Most tables have one hour, for which numpy's fixed cost is not worth it.
            pairs = list(_PAIR.iter_unpack(raw))
            out._hours = array(_U32, [hour for hour, _ in pairs])
            out._counts = array(_U32, [count for _, count in pairs])
        return out


class _Pairs(ItemsView[int, int]):
    def __init__(self, columns: CountColumns) -> None:
        super().__init__(columns)
        self._columns = columns

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return self._columns.pairs()


def _column(values: npt.NDArray[np.generic]) -> array[int]:
    return array(_U32, values.astype(np.uint32).tobytes())
