"""Tails: rows that are applied but not yet in their hour's files.

A frame whose rows fall into few hours becomes one chunk per hour. A frame with few rows in each of
many hours stays one loose block, so that its rows cost nothing until the splitter sorts all loose
blocks at once; a look-up into an hour first splits them into chunks. Look-ups find rows here until
their hour has taken over the flushed ones.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from typing import Final

import numpy as np

from delaylog.storage.columns.questions import Mask, every
from delaylog.storage.columns.whole_rows import concat_rows, take_rows
from delaylog.storage.hours.far.far_pile import FarPile
from delaylog.storage.hours.hour_tail import HourTail, TailChunk
from delaylog.storage.layout import INDEX_ENTRY, INDEX_MASK, RowArray
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.few_rows import FewRows
from delaylog.storage.messages.rows import PlacedRows

TAIL_BYTES_MAX: Final = 28 << 20
"""Rows and bodies in memory before the splitter takes them to their hours."""
_ROWS_PER_HOUR_MIN: Final = 64
_DIRECT_HOURS_MAX: Final = 4
_OVERHEAD_BYTES: Final = 400


class TailPile:
    """All tails and loose blocks, and the memory that they take."""

    def __init__(self, far: FarPile) -> None:
        """`far` = rows of far hours that are not in runs yet."""
        self._far = far
        self._tails: dict[int, HourTail] = {}
        self._loose: list[PlacedRows] = []
        self._size_bytes = 0
        self.bytes_max = TAIL_BYTES_MAX

    @property
    def size_bytes(self) -> int:
        """Memory of all rows and records that are not in files yet."""
        return self._size_bytes + self._far.size_bytes

    def add(self, placed: PlacedRows) -> None:
        """Add numbered rows; they are visible at once."""
        rows = placed.rows
        n = len(rows)
        if not n:
            return
        self._size_bytes += len(placed.data) + n * INDEX_ENTRY.itemsize + _OVERHEAD_BYTES
        hours = len(placed.hours)
        if hours > _DIRECT_HOURS_MAX and n < hours * _ROWS_PER_HOUR_MIN:
            self._loose.append(placed)
        else:
            self._add_chunks(placed)

    def add_few(self, few: FewRows) -> None:
        """Add numbered rows of one near hour."""
        hour, data, raw = few.hours[0], few.data, few.raw
        self._size_bytes += len(data) + len(raw) + _OVERHEAD_BYTES
        tail = self._tails.get(hour)
        if tail is None:
            tail = self._tails[hour] = HourTail()
        rows, first = np.frombuffer(raw, INDEX_ENTRY), few.refs[0] & INDEX_MASK
        view = memoryview(raw)
        tail.add(TailChunk(first, rows, data, True, few.position, _OVERHEAD_BYTES, view))

    def add_mixed(self, placed: PlacedRows, near: int, far: Mask) -> None:
        """As `add`; of the hours from number `near` on, those of the mask `far` are far ones."""
        if near:
            self.add(placed.part(0, near))
        lengths = np.diff(placed.starts[near:])
        hours = np.repeat(np.array(placed.hours[near:], np.int64), lengths)
        rows = placed.rows[placed.starts[near] :]
        if not every(far):
            for k in np.flatnonzero(~far).tolist():
                self.add(placed.part(near + k, near + k + 1))
            mask = np.repeat(far, lengths)
            hours, rows = hours[mask], take_rows(rows, mask)
        if len(rows):
            self._far.add(hours, rows, placed.data, placed.position)

    def _add_chunks(self, placed: PlacedRows) -> None:
        whole = len(placed.hours) == 1 and placed.order is None
        extra = _OVERHEAD_BYTES if whole else _extra_bytes(placed)
        for k, hour in enumerate(placed.hours):
            rows = placed.rows[placed.starts[k] : placed.starts[k + 1]]
            tail = self._tails.get(hour)
            if tail is None:
                tail = self._tails[hour] = HourTail()
            first = int(rows["global_index"][0])
            tail.add(TailChunk(first, rows, placed.data, whole, placed.position, extra))
            extra = 0

    def adopt(self, hour: int, chunks: list[TailChunk]) -> None:
        """Add the rows of an hour that is no longer a far one."""
        for chunk in chunks:
            self._tails.setdefault(hour, HourTail()).add(chunk)
            size = int(chunk.rows["size"].sum(dtype=np.int64))
            self._size_bytes += size + len(chunk.rows) * INDEX_ENTRY.itemsize

    def tail(self, hour: int) -> HourTail | None:
        """The tail of an hour, after splitting loose blocks into chunks."""
        if self._loose:
            self._break_up()
        return self._tails.get(hour)

    def parts(self, hour: int) -> list[tuple[RowArray, Block]]:
        """All unflushed rows of an hour in any order, each part with the block of its records.

        Loose blocks are not split.
        """
        tail = self._tails.get(hour)
        out = [] if tail is None else [(chunk.rows, chunk.data) for chunk in tail.chunks]
        for placed in self._loose:
            k = bisect_left(placed.hours, hour)
            if k < len(placed.hours) and placed.hours[k] == hour:
                out.append((placed.rows[placed.starts[k] : placed.starts[k + 1]], placed.data))
        return out + self._far.hour_parts(hour)

    def _break_up(self) -> None:
        """Split every loose block into chunks of its hours."""
        loose, self._loose = self._loose, []
        for placed in loose:
            self._add_chunks(placed)
        for tail in self._tails.values():
            if any(a > b for a, b in itertools.pairwise(tail.firsts)):
                tail.chunks.sort(key=lambda chunk: chunk.first_index)
                tail.firsts = [chunk.first_index for chunk in tail.chunks]

    @property
    def has_loose(self) -> bool:
        """Whether there are loose blocks."""
        return bool(self._loose)

    @property
    def empty(self) -> bool:
        """Whether no row waits to be flushed."""
        return not self._tails and not self._loose and self._far.empty

    def take(self, *, upto: int, hour: int | None = None) -> list[tuple[int, list[TailChunk]]]:
        """Chunks of frames below position `upto`, per hour; they stay here until `drop`.

        With `hour`, only that hour's. Loose blocks that were not merged are split into chunks.
        """
        if hour is None:
            if any(placed.position < upto for placed in self._loose):
                self._break_up()
            hours = sorted(self._tails)
        else:
            hours = [hour] if self.tail(hour) is not None else []
        out = []
        for which in hours:
            chunks = []
            for chunk in self._tails[which].chunks:
                if chunk.position >= upto:
                    break
                chunks.append(chunk)
            if chunks:
                out.append((which, chunks))
        return out

    def begin_merge(self, upto: int) -> list[PlacedRows]:
        """Loose blocks of frames below `upto`, to be sorted by `sort_loose` on any thread."""
        return [placed for placed in self._loose if placed.position < upto]

    def end_merge(self, blocks: list[PlacedRows], merged: list[tuple[int, TailChunk]]) -> None:
        """Replace loose blocks by their sorted chunks, unless a look-up has split the blocks."""
        if self._loose[: len(blocks)] != blocks:
            return
        self._loose = self._loose[len(blocks) :]
        if merged:
            merged[0][1].extra_bytes = sum(_extra_bytes(placed) for placed in blocks)
        for hour, chunk in merged:
            tail = self._tails.setdefault(hour, HourTail())
            if tail.chunks and tail.chunks[-1].last_index >= chunk.first_index:
                _weave(tail, chunk)
            else:
                tail.add(chunk)

    def drop(self, hour: int, chunks: list[TailChunk]) -> None:
        """Forget flushed chunks (the oldest of their hour)."""
        tail = self._tails[hour]
        gone = len(chunks)
        assert tail.chunks[:gone] == chunks, "flushes take the oldest chunks of an hour"
        del tail.chunks[:gone], tail.firsts[:gone]
        if not tail.chunks:
            del self._tails[hour]
        if not self._tails and not self._loose:
            self._size_bytes = 0
        else:
            rows = sum(len(chunk.rows) for chunk in chunks)
            size = sum(int(chunk.rows["size"].sum()) + chunk.extra_bytes for chunk in chunks)
            self._size_bytes -= size + rows * INDEX_ENTRY.itemsize


def _extra_bytes(placed: PlacedRows) -> int:
    """Bytes of a frame in addition to its rows and records; includes records of refused rows."""
    return _OVERHEAD_BYTES + len(placed.data) - int(placed.rows["size"].sum())


def sort_loose(blocks: list[PlacedRows]) -> list[tuple[int, TailChunk]]:
    """All rows of loose blocks sorted by (hour, index), as one chunk for each hour.

    It runs on a worker, since a full pile takes a tenth of a second. The blocks do not change.
    """
    rows = concat_rows([p.rows for p in blocks])
    lengths = [len(p.rows) for p in blocks]
    bases = np.cumsum([0, *(len(p.data) for p in blocks)])[:-1]
    rows["offset"] += np.repeat(bases, lengths).astype(np.uint64)
    data = blocks[0].data if len(blocks) == 1 else b"".join(p.data for p in blocks)
    hour = np.concatenate([np.repeat(np.array(p.hours), np.diff(p.starts)) for p in blocks])
    low = int(hour.min())
    span = int(hour.max()) - low
    # A stable sort keeps log order inside an hour; 16-bit keys sort in linear time.
    key = (hour - low).astype(np.uint16) if span < 1 << 16 else hour
    order = np.argsort(key, kind="stable")
    rows, hour = take_rows(rows, order), hour[order]
    cuts = np.flatnonzero(np.diff(hour)) + 1
    bounds = [0, *cuts.tolist(), len(rows)]
    firsts = rows["global_index"][bounds[:-1]].tolist()
    hours = hour[bounds[:-1]].tolist()
    position = blocks[-1].position
    return [
        (hours[k], TailChunk(firsts[k], rows[bounds[k] : bounds[k + 1]], data, False, position))
        for k in range(len(hours))
    ]


def _weave(tail: HourTail, chunk: TailChunk) -> None:
    """Insert a merged chunk whose rows alternate with chunks that are already there."""
    firsts = np.array(tail.firsts)
    at = np.searchsorted(firsts, chunk.rows["global_index"])
    cuts = np.flatnonzero(
        (np.diff(at) != 0) | (np.diff(chunk.rows["global_index"].astype(np.int64)) != 1)
    )
    bounds = [0, *(cuts + 1).tolist(), len(chunk.rows)]
    for a, b in itertools.pairwise(bounds):
        part = chunk.rows[a:b]
        first = int(part["global_index"][0])
        extra = 0 if a else chunk.extra_bytes
        tail.chunks.append(TailChunk(first, part, chunk.data, False, chunk.position, extra))
    tail.chunks.sort(key=lambda c: c.first_index)
    tail.firsts = [c.first_index for c in tail.chunks]
