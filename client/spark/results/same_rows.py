"""Whether a repeated load has the rows of the load that was committed under its name.

A transaction remembers only how many rows it had. The sum of the rows' hashes is therefore
committed too, as the name of a second, empty transaction just before the first one. Rows count as
the same if they have the same ids or, in a DataFrame without ids, the same bodies: due times and
other columns may depend on the time of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa


class RowSum:
    """The number of rows, and a sum that does not depend on their order and partitions."""

    def __init__(self, *, adds: bool = True) -> None:
        """Without `adds`, rows are only counted."""
        self._adds = adds
        self.rows = 0
        self.sum = 0

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Pass batches on, and add their rows."""
        for batch in batches:
            self.rows += batch.num_rows
            if self._adds:
                name = "id" if "id" in batch.schema.names else "value"
                self.sum += sum_of(batch.column(name))
            yield batch


def sum_of(column: Any) -> int:
    """The sum of the hashes of texts, which depends on no order. A null counts as an empty text.

    CRC-32 is linear, so its values cannot be added as they are: their sums are equal for the ids
    `2026-11-26-00000` to `-99999` and for those of the next day. The steps in between are those of
    splitmix64 (https://prng.di.unimi.it/splitmix64.c).
    """
    texts = column.cast(pa.binary()).fill_null(b"").to_pylist()
    mixed = np.fromiter(map(crc32, texts), np.uint64, len(texts))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return int((mixed ^ (mixed >> np.uint64(31))).sum())


def marker_of(transaction: str, total: int) -> str:
    """The name of the empty transaction that holds the sum of a load."""
    return f"{transaction}.sum-{total % 2**64:x}"
