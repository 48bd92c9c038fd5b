"""Arrow IPC streams: untrusted ones are read, and messages are written as record batches.

A compressed buffer states its unpacked size in its first eight bytes, and Arrow allocates that
memory before it checks anything. So the sizes of a record batch are first added up from its
metadata, a small flatbuffer. Each batch is validated in full before one of its columns is used.
pyarrow is an optional dependency: without it, Arrow bodies are refused.

The answer with a claim's rows is a stream of the schema, any number of batches, and an end marker.
Columns are built from whole blocks; only headers, if any, are decoded row by row. Each batch is
sent when it is encoded, so a million messages need only the memory of one slice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import msgpack
import numpy as np

from delaylog.broker.calls.answers import Problem
from delaylog.contract.members import limit_note
from delaylog.storage.columns import every, gather, some
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.messages.records import RecordParts

# -------------------------------------------------------------------------------------- reading

ARROW: Final = "application/vnd.apache.arrow.stream"
_MESSAGE_HEADER: Final = 2
_BATCH_LENGTH, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 2, 3
_AS_IT_IS: Final = -1
"""The size that marks an uncompressed buffer in a compressed batch."""


def pyarrow() -> Any:
    """The library, or a Problem that says how to install it."""
    try:
        import pyarrow as library
        import pyarrow.compute
        import pyarrow.ipc
    except ImportError:
        raise Problem(
            "unsupported",
            "this broker cannot read Arrow: install delaylog[arrow] (pyarrow) on it",
        ) from None
    return library


def read_stream(
    raw: bytes, *, bytes_max: int, rows_max: int, check_schema: Callable[[Any], None]
) -> tuple[Any, list[Any]]:
    """(schema, record batches that have rows) of a stream; raises a Problem if it is not valid.

    `check_schema` is called before the first batch is read.
    """
    library = pyarrow()
    try:
        return _read(library, raw, bytes_max, rows_max, check_schema)
    except (library.ArrowException, OSError, struct.error, UnicodeDecodeError) as error:
        text = str(error).splitlines()
        reason = text[0][:200] if text else type(error).__name__
        raise Problem("bad_request", f"the body is no Arrow IPC stream: {reason}") from None


def _read(
    library: Any,
    raw: bytes,
    bytes_max: int,
    rows_max: int,
    check_schema: Callable[[Any], None],
) -> tuple[Any, list[Any]]:
    source = library.BufferReader(raw)
    messages = _messages(library.ipc.MessageReader.open_stream(source))
    first = next(messages, None)
    if first is None or first.type != "schema":
        raise Problem("bad_request", "an Arrow IPC stream begins with its schema")
    schema = library.ipc.read_schema(first)
    check_schema(schema)
    batches: list[Any] = []
    size = rows = 0
    for message in messages:
        if message.type != "record batch":
            raise Problem("bad_request", f"an Arrow {message.type} is not read here")
        length, unpacked = _batch_sizes(memoryview(message.metadata), memoryview(message.body))
        size, rows = size + unpacked, rows + length
        if size > bytes_max:
            raise Problem(
                "too_large",
                f"a body unpacks to at most {bytes_max} bytes" + limit_note("request_bytes_max"),
            )
        if not 0 <= length <= rows <= rows_max:
            raise Problem(
                "bad_request",
                f"a body has at most {rows_max} rows" + limit_note("bulk_rows_max"),
                field="n",
            )
        batch = library.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        if batch.num_rows:
            batches.append(batch)
    if source.tell() != len(raw):
        raise Problem("bad_request", "there are bytes after the end of the Arrow IPC stream")
    return schema, batches


def _messages(reader: Any) -> Iterator[Any]:
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _batch_sizes(metadata: memoryview, body: memoryview) -> tuple[int, int]:
    """(rows, unpacked bytes) of a record batch, from its metadata.

    metadata: a flatbuffer Message {version, header_type, header: RecordBatch {length, nodes,
    buffers: [{offset i64, length i64}], compression}, bodyLength}.
    """
    message = _u32(metadata, 0)
    at = _field(metadata, message, _MESSAGE_HEADER)
    if at is None:
        raise struct.error("a message has no header")
    batch = at + _u32(metadata, at)
    at = _field(metadata, batch, _BATCH_LENGTH)
    rows = 0 if at is None else int(struct.unpack_from("<q", metadata, at)[0])
    at = _field(metadata, batch, _BATCH_BUFFERS)
    if at is None:
        return rows, 0
    vector = at + _u32(metadata, at)
    count = _u32(metadata, vector)
    table = struct.unpack_from(f"<{2 * count}q", metadata, vector + 4)
    lengths = table[1::2]
    if _field(metadata, batch, _BATCH_COMPRESSION) is None:
        return rows, sum(lengths)
    size = 0
    for offset, length in zip(table[::2], lengths, strict=True):
        if length == 0:
            continue
        if offset < 0 or length < 8:
            raise struct.error("a compressed buffer is too short")
        (unpacked,) = struct.unpack_from("<q", body, offset)
        if unpacked < _AS_IT_IS:
            raise struct.error("a compressed buffer states a negative size")
        size += length if unpacked == _AS_IT_IS else unpacked
    return rows, size


def _u32(raw: memoryview, at: int) -> int:
    return int(struct.unpack_from("<I", raw, at)[0])


def _field(raw: memoryview, table: int, number: int) -> int | None:
    """The offset of a field of a flatbuffer table, None if the field is absent."""
    vtable = table - int(struct.unpack_from("<i", raw, table)[0])
    if vtable < 0:
        raise struct.error("a table points before the beginning")
    size = int(struct.unpack_from("<H", raw, vtable)[0])
    at = 4 + 2 * number
    if at + 2 > size:
        return None
    offset = int(struct.unpack_from("<H", raw, vtable + at)[0])
    return table + offset if offset else None


# -------------------------------------------------------------------------------------- writing

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
