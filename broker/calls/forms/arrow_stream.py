"""Reads untrusted Arrow IPC streams; their unpacked size is checked before anything is unpacked.

A compressed buffer states its unpacked size in its first eight bytes, and Arrow allocates that
memory before it checks anything. So the sizes of a record batch are first added up from its
metadata, a small flatbuffer. Each batch is validated in full before one of its columns is used.
pyarrow is an optional dependency: without it, Arrow bodies are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from delaylog.broker.calls.problems import Problem
from delaylog.contract.members import limit_note

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
