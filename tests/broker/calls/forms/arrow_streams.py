"""Streams of Arrow, as the library that others use writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

UTC_US = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    """An IPC stream of record batches."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def one(**columns: Any) -> pa.RecordBatch:
    """A record batch with a value and a time, unless others are given."""
    n = len(next(iter(columns.values()))) if columns else 1
    if "value" not in columns:
        columns = {"value": pa.array([b"x"] * n, pa.binary()), **columns}
    if "deliver_at" not in columns and "delay_ms" not in columns:
        columns["delay_ms"] = pa.array([5] * n, pa.int64())
    return pa.record_batch({name: each for name, each in columns.items() if each is not None})
