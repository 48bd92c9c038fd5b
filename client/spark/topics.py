"""Rows of many topics on their way: buffered, sorted by topic, and cut where another topic begins.

Each run of rows of one topic in a request is a part of the transaction, so sorting makes few parts
of many rows: about one for each topic and task. Rows of one topic keep their order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delaylog.chunks import row_bytes

TOPIC: Final = "topic"


class MixedRows:
    """Buffers record batches that have a column `topic`."""

    def __init__(self) -> None:
        self._batches: list[Any] = []
        self.size = 0
        """The approximate number of buffered bytes."""

    def add(self, batch: Any) -> None:
        """Buffer a batch."""
        self._batches.append(batch)
        self.size += int(row_bytes(batch).sum())

    def take(self) -> list[Any]:
        """The buffered rows as batches sorted by topic; the buffer is then empty."""
        batches, self._batches, self.size = self._batches, [], 0
        if not batches:
            return []
        table = pa.Table.from_batches(batches).combine_chunks()
        # The sort is stable.
        found = table.take(pc.sort_indices(table.column(TOPIC))).combine_chunks().to_batches()
        return list(found)


def runs_of(batch: Any) -> Iterator[tuple[str, int, int]]:
    """(topic, first row, number of rows) of each run of adjacent rows of one topic."""
    starts = run_starts(batch)
    names = batch.column(TOPIC).take(pa.array(starts)).to_pylist()
    ends = [*starts[1:].tolist(), batch.num_rows]
    for name, start, end in zip(names, starts.tolist(), ends, strict=True):
        yield name, start, end - start


def run_starts(batch: Any) -> Any:
    """The first row of each run, as an array; empty without rows."""
    if batch.num_rows == 0:
        return np.zeros(0, np.int64)
    topics = batch.column(TOPIC)
    other = pc.not_equal(topics.slice(1), topics.slice(0, batch.num_rows - 1))
    return np.concatenate([[0], np.flatnonzero(other.to_numpy(zero_copy_only=False)) + 1])


def groups_of_runs(batch: Any, runs_max: int) -> Iterator[Any]:
    """The batch in slices of at most `runs_max` runs."""
    cuts = [*run_starts(batch)[::runs_max].tolist(), batch.num_rows]
    for start, end in itertools.pairwise(cuts):
        yield batch.slice(start, end - start)
