"""Reads rows and records of one hour's files, and follows the chains of its seconds.

Dense ranges are read with one pread. Scattered rows are read through mapped pieces of the file. A
piece is mapped once the file has reached the piece's end; it is never resized, and never closed
while a view of it exists: callers copy bytes that they keep beyond the turn. Bytes that no whole
piece covers are read with pread, so a short or unfinished file is never accessed through a map.
Results of a reader are copies. A reader belongs to one thread; another thread makes its own
(`DelayHour.own_reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from delaylog.storage.columns import (
    consecutive,
    copy_rows,
    distinct,
    gather,
    join_ranges,
    put_rows,
    read_spans,
    scatter_back,
    some,
    take_rows,
)
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, Mapping
from delaylog.storage.hours.extents import ExtentChecks
from delaylog.storage.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_ROW,
    INDEX_WORDS,
    NO_TAG,
    PRE_GLOBAL_INDEX_WORD,
    Int64Array,
    RowArray,
    head_sizes,
)
from delaylog.storage.messages.rows import RowValues

# ---------------------------------------------------- read-only mapped pieces of a growing file

LOG_PIECE_SIZE: Final = 8 << 20
"""Small enough that all but the last few MiB of a busy hour are mapped: scattered rows of the
unfinished piece cost a pread each, four times a mapped look-up."""
INDEX_PIECE_ROWS: Final = 18 * 4096
"""Rows in an index piece: about 8 MiB, a whole number of rows and of pages."""
RESIDENT_BYTES_MAX: Final = 24 << 20
"""The pages are released once the estimate of the resident ones exceeds this."""
_FAULT_AROUND_BYTES: Final = 65_536
"""A page fault maps the neighbouring pages too, this much in all."""


class MappedPieces:
    """Whole pieces of one file, mapped on demand up to a known size."""

    def __init__(self, file: File, piece_size: int) -> None:
        self._file = file
        self._piece_size = piece_size
        self._pieces: dict[int, Mapping] = {}
        self._touches = 0

    def touched(self, count: int) -> None:
        """Count reads of scattered places; release the pages when many may be resident."""
        self._touches += count
        resident = min(self._touches * _FAULT_AROUND_BYTES, len(self._pieces) * self._piece_size)
        if resident > RESIDENT_BYTES_MAX:
            self.forget()

    def piece(self, number: int, size_known: int) -> memoryview | None:
        """A view of piece `number`, or None while the file has not reached its end."""
        mapping = self._pieces.get(number)
        if mapping is None:
            if (number + 1) * self._piece_size > size_known:
                return None
            mapping = self._file.map_read(number * self._piece_size, self._piece_size)
            self._pieces[number] = mapping
        return memoryview(mapping.buffer)

    def forget(self) -> None:
        """Release the resident pages of every piece."""
        self._touches = 0
        for mapping in self._pieces.values():
            mapping.forget(0, self._piece_size)

    def close(self) -> None:
        """Unmap everything."""
        for mapping in self._pieces.values():
            mapping.close()
        self._pieces.clear()


# ----------------------------------------------------------------------------------- the reader

READ_GAP_ROWS: Final = 36
READ_GAP_BYTES: Final = 4096
_WINDOW_ROWS_MIN: Final = 36
_WINDOW_ROWS_MAX: Final = 4096
_SCAN_ROWS: Final = 65_536


class HourReader:
    """Rows and records of one hour, up to `row_count` and `log_size`, which the hour sets."""

    def __init__(
        self,
        open_file: Callable[[str], File],
        folder: str,
        checks: Callable[[], ExtentChecks] | None = None,
    ) -> None:
        """`checks` checks ranges before they are read; None if the caller has checked them."""
        self._open_file = open_file
        self._checks = checks
        self._folder = folder
        self.row_count = 0
        self.log_size = 0
        self.mapped = False
        self.sparse = False
        """Whether compaction removed rows, which read as zeros."""
        self._pieces: dict[str, MappedPieces] = {}

    def _mapped(self, name: str, piece_size: int) -> MappedPieces | None:
        if not self.mapped:
            return None
        pieces = self._pieces.get(name)
        if pieces is None:
            pieces = self._pieces[name] = MappedPieces(self._open_file(name), piece_size)
        return pieces

    def rows(self, indexes: Int64Array) -> RowArray:
        """Copies of the index rows `indexes` (all of them in the files)."""
        n = len(indexes)
        if self._checks is not None:
            self._checks().rows(indexes)
        low, high = int(indexes.min()), int(indexes.max())
        file = self._open_file("delay.index")
        if high - low + 1 <= 4 * n + READ_GAP_ROWS:
            raw = file.pread((high - low + 1) * INDEX_ENTRY_SIZE, (low - 1) * INDEX_ENTRY_SIZE)
            rows = np.frombuffer(raw, INDEX_ENTRY)
            if not consecutive(indexes):
                rows = take_rows(rows, indexes - low)
            return self._sound(rows, indexes)
        out = np.empty(n, INDEX_ENTRY)
        left = np.ones(n, np.bool_)
        pieces = self._mapped("delay.index", INDEX_PIECE_ROWS * INDEX_ENTRY_SIZE)
        if pieces is not None:
            number = (indexes - 1) // INDEX_PIECE_ROWS
            for which in distinct(number).tolist():
                view = pieces.piece(which, self.row_count * INDEX_ENTRY_SIZE)
                if view is None:
                    continue
                mask = number == which
                rows = np.frombuffer(view, INDEX_ENTRY)
                there = indexes[mask] - 1 - which * INDEX_PIECE_ROWS
                put_rows(out, mask, take_rows(rows, there))
                left &= ~mask
            pieces.touched(n)
        if some(left):
            rest = indexes[left] - 1
            starts = rest * INDEX_ENTRY_SIZE
            sizes = np.full(len(rest), INDEX_ENTRY_SIZE, np.int64)
            raw = read_spans(file.pread, starts, sizes, gap=READ_GAP_ROWS * INDEX_ENTRY_SIZE)
            put_rows(out, left, np.frombuffer(raw, INDEX_ENTRY))
        return self._sound(out, indexes)

    def few(self, indexes: Sequence[int]) -> list[tuple[bytes, RowValues, bytes]] | None:
        """(bytes, fields, record) of few rows, read with two preads.

        None if they are not close together, or if one has a wrong number: see `rows` for these.
        """
        checks = None if self._checks is None else self._checks()
        if checks is not None and checks.whole:
            checks = None
        low, high = min(indexes), max(indexes)
        if high - low + 1 > 4 * len(indexes) + READ_GAP_ROWS:
            return None
        if checks is not None:
            checks.rows(np.array(indexes, np.int64))
        size = INDEX_ENTRY_SIZE
        raw = self._open_file("delay.index").pread((high - low + 1) * size, (low - 1) * size)
        rows = [
            RowValues._make(INDEX_ROW.unpack_from(raw, (index - low) * size)) for index in indexes
        ]
        starts = [row.offset for row in rows]
        first, end, total = min(starts), 0, 0
        for index, row in zip(indexes, rows, strict=True):
            if row.global_index != index:
                return None
            end = max(end, row.offset + row.size)
            total += row.size
        if end - first > 2 * total + READ_GAP_BYTES:
            return None
        if checks is not None:
            checks.records(np.array(starts, np.int64))
        data = self._open_file("delay.log").pread(end - first, first)
        out = []
        for index, row in zip(indexes, rows, strict=True):
            at, start = (index - low) * size, row.offset - first
            out.append((raw[at : at + size], row, data[start : start + row.size]))
        return out

    def _sound(self, rows: RowArray, indexes: Int64Array) -> RowArray:
        """Raise CorruptionError if a row does not have the number that its offset implies.

        This is the cheapest check. A row that compaction removed gets a tag that no ref has.
        """
        wrong = rows["global_index"] != indexes
        if self.sparse and some(wrong):
            gone = rows["global_index"] == 0
            rows = copy_rows(rows)
            rows["epoch_tag"][gone] = NO_TAG
            wrong &= ~gone
        if some(wrong):
            index = int(indexes[np.flatnonzero(wrong)[0]])
            raise CorruptionError(
                "a row with a wrong number",
                path=f"{self._folder}/delay.index",
                position=(index - 1) * INDEX_ENTRY_SIZE,
                detail=f"row {index}",
            )
        return rows

    def scan(self, first: int, last: int) -> Iterator[RowArray]:
        """Rows first..last in index order, in parts, read with pread."""
        for start in range(first, last + 1, _SCAN_ROWS):
            count = min(_SCAN_ROWS, last + 1 - start)
            if self._checks is not None:
                self._checks().rows_between(start, start + count - 1)
            file = self._open_file("delay.index")
            raw = file.pread(count * INDEX_ENTRY_SIZE, (start - 1) * INDEX_ENTRY_SIZE)
            yield np.frombuffer(raw, INDEX_ENTRY)

    def walk(self, index: int, last: int, *, slice_rows: int) -> Iterator[list[int]]:
        """Follow a chain from row `index` (0 = no row) to its oldest row, in slices of row
        numbers; rows after `last` are skipped.

        The read window adapts: dense chains are read in bulk, sparse ones a page at a time.
        """
        out: list[int] = []
        words: memoryview = memoryview(b"").cast("I")
        low, high = 1, 0
        rows = _WINDOW_ROWS_MIN
        while index:
            if not low <= index <= high:
                rows = min(rows * 2, _WINDOW_ROWS_MAX) if low - 1 == index else _WINDOW_ROWS_MIN
                low, high = max(index - rows + 1, 1), index
                # Open the file again: the hour may have closed it between two slices.
                if self._checks is not None:
                    self._checks().rows_between(low, high)
                file = self._open_file("delay.index")
                raw = file.pread((high - low + 1) * INDEX_ENTRY_SIZE, (low - 1) * INDEX_ENTRY_SIZE)
                words = memoryview(raw).cast("I")
            if index <= last:
                out.append(index)
            before = words[(index - low) * INDEX_WORDS + PRE_GLOBAL_INDEX_WORD]
            if before >= index:
                raise CorruptionError(
                    "a chain that does not lead to an earlier row",
                    path=f"{self._folder}/delay.index",
                    position=(index - 1) * INDEX_ENTRY_SIZE,
                    detail=f"row {index} names {before}",
                )
            index = before
            if len(out) >= slice_rows:
                yield out
                out = []
        yield out

    def records(self, rows: RowArray, *, checked: bool = True) -> bytes:
        """The records (id, key, tags, headers, body) of `rows`, one after another."""
        starts = rows["offset"].astype(np.int64)
        sizes = rows["size"].astype(np.int64)
        if checked and self._checks is not None:
            self._checks().records(starts)
        file = self._open_file("delay.log")
        pieces = self._mapped("delay.log", LOG_PIECE_SIZE)
        if pieces is None or len(rows) == 0:
            return read_spans(file.pread, starts, sizes, gap=READ_GAP_BYTES)
        low, high = int(starts.min()), int((starts + sizes).max())
        if high - low <= 2 * int(sizes.sum()) + READ_GAP_BYTES:
            return read_spans(file.pread, starts, sizes, gap=READ_GAP_BYTES)
        which = starts // LOG_PIECE_SIZE
        inside = (starts + sizes - 1) // LOG_PIECE_SIZE == which
        views: dict[int, memoryview] = {}
        for number in distinct(which[inside]).tolist():
            view = pieces.piece(number, self.log_size)
            if view is not None:
                views[number] = view
        pieces.touched(len(rows))
        mapped = inside & np.isin(which, list(views))
        if some(sizes != sizes[0]):
            # Ranges of different sizes are copied one by one, directly from the mapped pieces.
            outside = ~mapped
            which[outside] = -1
            within = starts - which * LOG_PIECE_SIZE
            if some(outside):
                rest = sizes[outside]
                views[-1] = memoryview(
                    read_spans(file.pread, starts[outside], rest, gap=READ_GAP_BYTES)
                )
                within[outside] = np.cumsum(rest) - rest
            return join_ranges([views[k] for k in which.tolist()], within, sizes)
        parts: list[bytes] = []
        places: list[Int64Array] = []
        for number, view in views.items():
            mask = mapped & (which == number)
            parts.append(gather(view, starts[mask] - number * LOG_PIECE_SIZE, sizes[mask]))
            places.append(np.flatnonzero(mask))
        if not mapped.all():
            parts.append(
                read_spans(file.pread, starts[~mapped], sizes[~mapped], gap=READ_GAP_BYTES)
            )
            places.append(np.flatnonzero(~mapped))
        return scatter_back(parts, places, sizes)

    def heads(self, rows: RowArray) -> bytes:
        """The records of `rows` without their bodies, unchecked: see `DelayHour.read_heads`."""
        starts = rows["offset"].astype(np.int64)
        file = self._open_file("delay.log")
        return read_spans(file.pread, starts, head_sizes(rows), gap=READ_GAP_BYTES)

    def forget_pages(self) -> None:
        """Release the resident pages of the mapped pieces."""
        for pieces in self._pieces.values():
            pieces.forget()

    def unmap(self) -> None:
        """Stop reading through maps."""
        self.mapped = False
        for pieces in self._pieces.values():
            pieces.close()
        self._pieces.clear()
