"""Record batches as Spark hands them to a writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

TIME = pa.timestamp("us", tz="Europe/Berlin")
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))


def batch_of(ids: Sequence[str | None], **columns: Any) -> Any:
    """A batch with ids, bodies made of them and a time; `columns` add to it or replace."""
    arrays = {
        "id": pa.array(ids, pa.string()),
        "value": pa.array([f"body of {each}" for each in ids], pa.string()),
        "deliver_at": pa.array([1_770_000_000_000_000] * len(ids), pa.int64()).cast(TIME),
        **columns,
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def ids_of(first: int, end: int) -> list[str]:
    return [f"m{number:06d}" for number in range(first, end)]
