"""The rows of one hour that are not in its files yet, for one page of a list.

A snapshot of the tail at one moment: rows that the splitter writes meanwhile are still here, and
the files are read only up to the last row that they had then. Only the columns that order rows are
copied.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

import numpy as np

from delaylog.broker.engine.views.list_filter import Mask
from delaylog.broker.engine.views.scanning import part_slices
from delaylog.storage.columns.whole_rows import concat_rows
from delaylog.storage.layout import INDEX_ENTRY, Int64Array, RowArray, head_sizes
from delaylog.storage.messages.batch import Block

_SLICE_ROWS: Final = 16_384


class TailView:
    """Rows of a tail that match a filter, ordered by (due time, index)."""

    def __init__(self, parts: list[tuple[RowArray, Block]]) -> None:
        self._parts = parts
        empty = np.zeros(0, np.int64)
        self.due, self.expires, self.index, self.sent = empty, empty, empty, np.zeros(0, np.uint64)
        self._part, self._at = empty, empty

    def __len__(self) -> int:
        return len(self.index)

    def fill(self, keep: Callable[[RowArray], Mask], last: int) -> Generator[None, None, None]:
        """Read the rows with numbers above `last`, in slices."""
        columns: list[tuple[Int64Array, ...]] = []
        every = [rows for rows, _ in self._parts]
        for first, stop in part_slices(every, _SLICE_ROWS):
            parts = every[first:stop]
            rows = concat_rows(parts)
            lengths = [len(part) for part in parts]
            mask = keep(rows) & (rows["global_index"] > last)
            part = np.repeat(np.arange(first, stop), lengths)
            at = np.arange(len(rows)) - np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
            due, expires = rows["deliver_at"][mask], rows["expires_at"][mask]
            index, sent = rows["global_index"][mask].astype(np.int64), rows["sent_position"][mask]
            columns.append((due, expires, index, sent, part[mask], at[mask]))
            yield
        if columns:
            due, expires, index, sent, part, at = map(np.concatenate, zip(*columns, strict=True))
            order = np.lexsort((index, due))
            self.due, self.expires, self.index = due[order], expires[order], index[order]
            self.sent, self._part, self._at = sent[order], part[order], at[order]

    def _located(self, which: Int64Array) -> list[tuple[RowArray, Block, int]]:
        parts = self._parts
        return [
            (*parts[part], at)
            for part, at in zip(self._part[which].tolist(), self._at[which].tolist(), strict=True)
        ]

    def rows(self, which: Int64Array) -> RowArray:
        """Copies of rows, by their numbers here."""
        if len(which) == 0:
            return np.zeros(0, INDEX_ENTRY)
        raw = b"".join([rows[at : at + 1].tobytes() for rows, _, at in self._located(which)])
        return np.frombuffer(raw, INDEX_ENTRY)

    def records(self, which: Int64Array, *, heads: bool) -> list[bytes]:
        """Their records, or with `heads` only the parts before the bodies."""
        out = []
        for rows, data, at in self._located(which):
            one = rows[at : at + 1]
            size = int(head_sizes(one)[0]) if heads else int(one["size"][0])
            start = int(one["offset"][0])
            out.append(bytes(data[start : start + size]))
        return out
