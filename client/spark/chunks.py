"""Record batches regrouped to the size of a request, and a request's body.

The one rule: a chunk has at most so many rows and about so many bytes, whatever batches Spark
hands over, and rows keep their order. Nothing is copied until the body is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW_BYTES: Final = 32
"""What a row takes beside its texts: time, offsets, priority."""


@dataclass(slots=True)
class Chunk:
    """Rows of one request, as slices of the batches they came in."""

    batches: list[Any] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def body(self, compression: str | None) -> bytes:
        """An Arrow IPC stream."""
        options = pa.ipc.IpcWriteOptions(compression=compression)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.batches[0].schema, options=options) as stream:
            for batch in self.batches:
                stream.write_batch(batch)
        return bytes(sink.getvalue().to_pybytes())

    def row(self, number: int) -> Any:
        """One row, as a batch."""
        for batch in self.batches:
            if number < batch.num_rows:
                return batch.slice(number, 1)
            number -= batch.num_rows
        raise IndexError(number)

    def without(self, number: int) -> Chunk:
        """All rows but one."""
        kept = Chunk(rows=self.rows - 1, size=self.size)
        for batch in self.batches:
            if 0 <= number < batch.num_rows:
                parts = [batch.slice(0, number), batch.slice(number + 1)]
                kept.batches += [part for part in parts if part.num_rows]
            else:
                kept.batches.append(batch)
            number -= batch.num_rows
        return kept


class Chunker:
    """Takes batches of one schema, gives chunks."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._held = Chunk()

    @property
    def size(self) -> int:
        """Bytes held back for the next chunk."""
        return self._held.size

    def add(self, batch: Any) -> Iterator[Chunk]:
        """What is full by now."""
        ends = np.cumsum(row_bytes(batch))
        first = 0
        while first < batch.num_rows:
            held = self._held
            start = int(ends[first - 1]) if first else 0
            room = start + self._bytes_max - held.size
            fitting = int(np.searchsorted(ends, room, side="right")) - first
            count = min(fitting, self._rows_max - held.rows)
            if count <= 0 and held.rows:
                yield from self.rest()
                continue
            # A row larger than a chunk goes alone; the broker says what it thinks of it.
            count = max(count, 1)
            part = batch.slice(first, count)
            held.batches.append(part)
            held.rows += part.num_rows
            first += part.num_rows
            held.size += int(ends[first - 1]) - start
            if held.rows == self._rows_max or held.size >= self._bytes_max:
                yield from self.rest()

    def rest(self) -> Iterator[Chunk]:
        """What is held back."""
        if self._held.rows:
            chunk, self._held = self._held, Chunk()
            yield chunk


def row_bytes(batch: Any) -> Any:
    """About how many bytes each row takes in a request; exact for texts."""
    total = np.full(batch.num_rows, ROW_BYTES, np.int64)
    for name in batch.schema.names:
        column = batch.column(name)
        kind = column.type
        if pa.types.is_binary(kind) or pa.types.is_string(kind):
            total += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        elif pa.types.is_list(kind) and batch.num_rows:
            # Headers: their mean, since rows have about the same ones.
            total += column.nbytes // batch.num_rows
    return total
