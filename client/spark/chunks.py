"""Regroups record batches into chunks of the size of a request, and encodes them.

A chunk has limited numbers of rows and (approximately) bytes, independent of Spark's batches, and
rows keep their order. Nothing is copied before the body is encoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW_BYTES: Final = 32
"""The size of a row without its texts: time, offsets, priority."""


@dataclass(slots=True)
class Chunk:
    """The rows of one request, as slices of record batches."""

    batches: list[Any] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def body(self, compression: str | None) -> bytes:
        """Encode the rows as an Arrow IPC stream."""
        options = pa.ipc.IpcWriteOptions(compression=compression)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.batches[0].schema, options=options) as stream:
            for batch in self.batches:
                stream.write_batch(batch)
        return bytes(sink.getvalue().to_pybytes())

    def row(self, number: int) -> Any:
        """One row, as a record batch."""
        for batch in self.batches:
            if number < batch.num_rows:
                return batch.slice(number, 1)
            number -= batch.num_rows
        raise IndexError(number)

    def without(self, number: int) -> Chunk:
        """The chunk without one row."""
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
    """Takes batches of one schema and returns chunks."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._held = Chunk()

    @property
    def size(self) -> int:
        """The number of bytes buffered for the next chunk."""
        return self._held.size

    def add(self, batch: Any) -> Iterator[Chunk]:
        """Add a batch. Yields the chunks that are full."""
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
            # A row larger than a chunk is sent alone; the broker decides whether to accept it.
            count = max(count, 1)
            part = batch.slice(first, count)
            held.batches.append(part)
            held.rows += part.num_rows
            first += part.num_rows
            held.size += int(ends[first - 1]) - start
            if held.rows == self._rows_max or held.size >= self._bytes_max:
                yield from self.rest()

    def rest(self) -> Iterator[Chunk]:
        """Yield the buffered rows as a last chunk."""
        if self._held.rows:
            chunk, self._held = self._held, Chunk()
            yield chunk


def row_bytes(batch: Any) -> Any:
    """The approximate size of each row in a request; exact for texts."""
    total = np.full(batch.num_rows, ROW_BYTES, np.int64)
    for name in batch.schema.names:
        column = batch.column(name)
        kind = column.type
        if pa.types.is_binary(kind) or pa.types.is_string(kind):
            total += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        elif pa.types.is_list(kind) and batch.num_rows:
            # Headers: the mean, since rows usually have similar headers.
            total += column.nbytes // batch.num_rows
    return total
