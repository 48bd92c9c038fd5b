"""Whether a repeated load has the rows of the load that was committed under its name.

A transaction remembers only how many rows it had. The sum of the rows' checksums is therefore
committed too, as the name of a second, empty transaction just before the first one. Rows count as
the same if they have the same ids or, in a DataFrame without ids, the same bodies: due times and
other columns may depend on the time of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import pyarrow as pa


class RowSum:
    """The number of rows, and a sum that does not depend on their order and partitions."""

    def __init__(self) -> None:
        self.rows = 0
        self.sum = 0

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Pass batches on, and add their rows."""
        for batch in batches:
            name = "id" if "id" in batch.schema.names else "value"
            texts = batch.column(name).cast(pa.binary()).fill_null(b"").to_pylist()
            self.rows += len(texts)
            self.sum += sum(map(crc32, texts))
            yield batch


def marker_of(transaction: str, total: int) -> str:
    """The name of the empty transaction that holds the sum of a load."""
    return f"{transaction}.sum-{total:x}"
