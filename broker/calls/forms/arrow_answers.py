"""Encodes messages as Arrow record batches, for the answer with a claim's rows.

Columns are built from whole blocks; only headers, if any, are decoded row by row. A stream consists
of the schema, any number of batches, and an end marker. Each batch is sent when it is encoded, so
a million messages need only the memory of one slice.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgpack
import numpy as np

from delaylog.broker.calls.forms.arrow_stream import pyarrow
from delaylog.storage.columns.gather import gather
from delaylog.storage.columns.questions import every, some
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.messages.records import RecordParts

END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of an Arrow IPC stream."""
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_MADE_ID_SIZE: Final = 17


@cache
def message_schema() -> Any:
    """The columns of a message."""
    library = pyarrow()
    pair = library.struct([("key", library.string()), ("value", library.binary())])
    return library.schema(
        [
            ("value", library.binary()),
            ("deliver_at", library.timestamp("us", tz="UTC")),
            ("id", library.string()),
            ("key", library.string()),
            ("topic", library.string()),
            ("priority", library.int32()),
            ("attempts", library.int32()),
            ("headers", library.list_(pair)),
            ("ref", library.int64()),
        ]
    )


def schema_bytes() -> bytes:
    """The beginning of a stream of messages."""
    return bytes(message_schema().serialize())


def batch_bytes(
    rows: RowArray, records: bytes, origins: Int64Array, attempts: Int64Array, topic: str
) -> bytes:
    """Messages as one record batch of a stream. Their records must total less than 2 GiB."""
    library, schema = pyarrow(), message_schema()
    n = len(rows)
    parts = RecordParts(rows, records)
    name = topic.encode()
    columns = [
        _blocks(library, schema.field("value").type, parts.sizes["body"], parts.cut("body")),
        _fixed(library, schema.field("deliver_at").type, rows["deliver_at"].astype("<i8") * 1_000),
        _ids(library, parts, origins),
        _keys(library, parts),
        _blocks(library, library.string(), np.full(n, len(name), np.int64), name * n),
        _fixed(library, library.int32(), rows["priority"].astype("<i4")),
        _fixed(library, library.int32(), attempts.astype("<i4")),
        _headers(library, schema.field("headers").type, parts),
        _fixed(library, library.int64(), origins.astype("<i8")),
    ]
    batch = library.RecordBatch.from_arrays(columns, schema=schema)
    return bytes(batch.serialize())


def _fixed(library: Any, kind: Any, values: np.ndarray) -> Any:
    return library.Array.from_buffers(kind, len(values), [None, library.py_buffer(values)])


def _blocks(
    library: Any, kind: Any, sizes: Int64Array, block: bytes, present: np.ndarray | None = None
) -> Any:
    """An array of strings or bytes from one contiguous block; `present` = which are not null."""
    offsets = np.zeros(len(sizes) + 1, "<i4")
    np.cumsum(sizes, out=offsets[1:])
    bitmap = None
    if present is not None and not every(present):
        bitmap = library.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [bitmap, library.py_buffer(offsets), library.py_buffer(block)]
    return library.Array.from_buffers(kind, len(sizes), buffers)


def _keys(library: Any, parts: RecordParts) -> Any:
    sizes = parts.sizes["key"]
    return _blocks(library, library.string(), sizes, parts.cut("key"), sizes > 0)


def _ids(library: Any, parts: RecordParts, origins: Int64Array) -> Any:
    """The ids: those of clients, and ids made by the server for messages without one."""
    starts, sizes = parts.starts["id"], parts.sizes["id"]
    none = sizes == 0
    if not some(none):
        return _blocks(library, library.string(), sizes, parts.cut("id"))
    made = _made_ids(origins)
    sizes = np.where(none, _MADE_ID_SIZE, sizes)
    if not every(none):
        numbers = np.arange(len(sizes), dtype=np.int64)
        starts = np.where(none, len(parts.block) + _MADE_ID_SIZE * numbers, starts)
        made = gather(bytes(parts.block) + made, starts, sizes)
    return _blocks(library, library.string(), sizes, made)


def _made_ids(origins: Int64Array) -> bytes:
    """The `ref_to_id` of each origin, concatenated."""
    raw = origins.astype(">i8").view(np.uint8).reshape(-1, 8)
    out = np.empty((len(origins), _MADE_ID_SIZE), np.uint8)
    out[:, 0] = ord("~")
    out[:, 1::2] = _HEX[raw >> 4]
    out[:, 2::2] = _HEX[raw & 15]
    return out.tobytes()


def _headers(library: Any, kind: Any, parts: RecordParts) -> Any:
    starts, sizes = parts.starts["headers"], parts.sizes["headers"]
    if not some(sizes):
        return library.nulls(len(sizes), kind)
    values: list[list[tuple[str, bytes]] | None] = [None] * len(sizes)
    for row in np.flatnonzero(sizes).tolist():
        at = int(starts[row])
        headers = msgpack.unpackb(parts.block[at : at + int(sizes[row])])
        values[row] = [(key, text.encode()) for key, text in headers.items()]
    return library.array(values, kind)
