"""Ranges of rows of a large batch as separate batches, which are views of it."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.messages.batch import Column, MessageBatch, TextColumn

_TEXTS: Final = ("body", "id", "key", "tags", "headers")
_NUMBERS: Final = ("deliver_at_ms", "delay_ms", "ttl_ms", "priority", "max_retry")
assert {*_TEXTS, *_NUMBERS} < {field.name for field in fields(MessageBatch)}


class BatchRanges:
    """Takes ranges of rows from one batch."""

    def __init__(self, batch: MessageBatch) -> None:
        self.batch = batch
        self._ends: dict[str, npt.NDArray[np.int64]] = {
            name: np.cumsum(column.size, dtype=np.int64)
            for name in _TEXTS
            if not isinstance((column := getattr(batch, name)).size, int)
        }

    @property
    def size_bytes(self) -> int:
        """The size of the batch in memory."""
        return len(self.batch.wire)

    def take(self, first: int, stop: int) -> MessageBatch:
        """The batch of the rows [first, stop)."""
        batch = self.batch
        assert 0 <= first < stop <= batch.n, "a range of rows lies inside its batch"
        out = MessageBatch(stop - first, merge=batch.merge, texts_checked=batch.texts_checked)
        for name in _NUMBERS:
            column: Column | None = getattr(batch, name)
            if column is not None and not isinstance(column, int):
                column = column[first:stop]
            setattr(out, name, column)
        for name in _TEXTS:
            setattr(out, name, self._text(name, first, stop))
        return out

    def _text(self, name: str, first: int, stop: int) -> TextColumn:
        column: TextColumn = getattr(self.batch, name)
        block = memoryview(column.block)
        if isinstance(column.size, int):
            return TextColumn(column.size, block[first * column.size : stop * column.size])
        ends = self._ends[name]
        start = int(ends[first - 1]) if first else 0
        return TextColumn(column.size[first:stop], block[start : int(ends[stop - 1])])
