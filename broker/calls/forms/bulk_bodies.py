"""Reads bodies that carry many rows as columns, in any of their media types.

Every body is converted to the columns of the bulk format, which the log stores (see
`storage/messages/batch.py`). An Arrow body is converted from whole blocks: nothing is done row by
row, and numpy views offsets and values in place. A row's time is rounded up to the millisecond, so
that no message is released early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from delaylog.broker.calls.answers import Problem, no_memory
from delaylog.broker.calls.context import BULK, Context
from delaylog.broker.calls.forms.arrow_stream import ARROW, pyarrow, read_stream
from delaylog.broker.engine.limits import Limits
from delaylog.contract.calls.shapes import PART_TOPIC
from delaylog.contract.members import (
    Choice,
    Int,
    Nested,
    Number,
    Text,
    TextList,
    TextMap,
    limit_note,
)
from delaylog.contract.message_fields import BACKOFF, COLUMNS, FIELDS, MERGE, MERGE_MODES
from delaylog.contract.own_backoff import NOT_SAID, OWN_BACKOFF_SIZE
from delaylog.storage.columns import Mask, alike
from delaylog.storage.layout import Int64Array
from delaylog.storage.messages.batch import (
    MessageBatch,
    decode_send,
    encode_send,
    own_backoff_entries,
)

# -------------------------------------------------------------------- a column of an Arrow body

_SIZE_MAX: Final = 2**16 - 1
"""The largest text other than a body: its size is a u16."""
Texts = tuple[Int64Array, bytes | memoryview]
"""Sizes, and all values concatenated."""


class ArrowColumn:
    """One column, over all batches of a stream."""

    __slots__ = ("chunks", "library", "name")

    def __init__(self, library: Any, name: str, batches: list[Any]) -> None:
        self.library = library
        self.name = name
        self.chunks = [batch.column(name) for batch in batches]

    def refuse_nulls(self) -> None:
        """Raise a Problem that names the first row without a value, if any."""
        row = first_null(self.chunks)
        if row is not None:
            raise self.wrong("is null", row)

    def wrong(self, what: str, row: int | None = None) -> Problem:
        """A refusal that names the column."""
        where = "" if row is None else f" in row {row}"
        return Problem("bad_request", f"{self.name} {what}{where}", field=self.name, item=row)

    def check(self, member: Int | Number, values: npt.NDArray[Any], present: Mask) -> None:
        """Raise a Problem that names the first value outside the member's bounds, if any."""
        low, high = member.low, member.high
        inside = (values >= low) & (values <= high)
        wrong = np.flatnonzero(present & ~inside)
        if len(wrong):
            row = int(wrong[0])
            name = "" if member.name == self.name else f"{member.name} "
            raise self.wrong(f"{name}must lie from {low} to {high}, not {values[row]},", row)

    def filled(self, value: Any) -> list[Any]:
        """The chunks with a value in place of nulls."""
        return [chunk.fill_null(value) if chunk.null_count else chunk for chunk in self.chunks]

    def int64(self, chunk: Any) -> Int64Array:
        """A chunk of integers, times included, without nulls."""
        kind = chunk.type
        if not self.library.types.is_timestamp(kind) and kind != self.library.int64():
            chunk = chunk.cast(self.library.int64())
        return values_of(chunk, "<i8", len(chunk))


def values_of(chunk: Any, dtype: str, count: int) -> np.ndarray:
    """Numbers or offsets of a chunk; its buffer may be longer, and end with part of a number."""
    buffer = chunk.buffers()[1]
    return np.frombuffer(buffer, dtype, chunk.offset + count)[chunk.offset :]


def texts_of(library: Any, chunks: list[Any]) -> Texts:
    """Sizes and bytes of string or binary chunks without nulls."""
    sizes, blocks = [], []
    for chunk in chunks:
        if len(chunk) == 0:
            continue
        types, kind = library.types, chunk.type
        wide = types.is_large_binary(kind) or types.is_large_string(kind)
        data = chunk.buffers()[2]
        ends = values_of(chunk, "<i8" if wide else "<i4", len(chunk) + 1)
        sizes.append((ends[1:] - ends[:-1]).astype(np.int64))
        view = memoryview(b"" if data is None else data)
        blocks.append(view[int(ends[0]) : int(ends[-1])])
    if len(sizes) == 1:
        return sizes[0], blocks[0]
    return (np.concatenate(sizes) if sizes else np.zeros(0, np.int64)), b"".join(blocks)


def put_texts(fields: dict[str, Any], name: str, block_name: str, texts: Texts) -> None:
    """A text column of the bulk form; nothing when all are empty."""
    sizes, block = texts
    if name != "body":
        if len(block) == 0:
            return
        if int(sizes.max()) > _SIZE_MAX:
            row = int(np.argmax(sizes))
            raise Problem("bad_request", f"{name} is too long in row {row}", field=name, item=row)
    fields[f"{name}_size"] = int(sizes[0]) if alike(sizes) else sizes
    fields[block_name] = block


def present_in(chunks: list[Any]) -> Mask:
    """Which rows are not null."""
    return np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks])


def put_numbers(fields: dict[str, Any], name: str, values: Int64Array) -> None:
    fields[name] = int(values[0]) if alike(values) else values


def row_of(counts: Int64Array, value: int) -> int:
    """The row of a list's value, by the index of the value among all values."""
    return int(np.searchsorted(np.cumsum(counts), value, side="right"))


def first_null(chunks: list[Any]) -> int | None:
    at = 0
    for chunk in chunks:
        if chunk.null_count:
            return at + int(np.argmax(chunk.is_null().to_numpy(zero_copy_only=False)))
        at += len(chunk)
    return None


# --------------------------------------------------------------------------------- Arrow bodies

# Checks of the Arrow types of message columns.


def is_text(types: Any, kind: Any) -> bool:
    return any(
        is_kind(kind) for is_kind in (types.is_binary, types.is_large_binary, types.is_string)
    ) or types.is_large_string(kind)


def is_utf8(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def are_tags(types: Any, kind: Any) -> bool:
    return is_list(types, kind) and is_utf8(types, kind.value_type)


def are_headers(types: Any, kind: Any) -> bool:
    if types.is_map(kind):
        return is_utf8(types, kind.key_type) and is_text(types, kind.item_type)
    if not is_list(types, kind) or not types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    named = [pair.field(at).name for at in range(pair.num_fields)] == ["key", "value"]
    return named and is_utf8(types, pair.field(0).type) and is_text(types, pair.field(1).type)


def is_integer(types: Any, kind: Any) -> bool:
    return bool(types.is_integer(kind))


def is_time(types: Any, kind: Any) -> bool:
    return bool(types.is_timestamp(kind))


def is_backoff(types: Any, kind: Any) -> bool:
    names = [kind.field(at).name for at in range(kind.num_fields)] if types.is_struct(kind) else []
    if not names or len(set(names)) < len(names):
        return False
    whole = {member.name: isinstance(member, Int) for member in BACKOFF.shape.members}
    for at in range(kind.num_fields):
        part = kind.field(at)
        fits = types.is_integer(part.type)
        if part.name not in whole or not (fits or types.is_floating(part.type)):
            return False
        if whole[part.name] and not fits:
            return False
    return True


TOPIC: Final = PART_TOPIC.name
_TEXTS: Final = "string or binary"
_LISTED: Final = "list<struct<key: string, value: binary>> or map<string, binary>"
_PER_S: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def decode_arrow(raw: bytes, limits: Limits) -> MessageBatch:
    """The rows of an Arrow IPC stream as a batch; its `wire` is the equivalent bulk body.

    Raises a Problem that names the column and, if it concerns one row, the row.
    """
    return _decode_arrow(raw, limits, _KNOWN)[0]


def decode_topics(raw: bytes, limits: Limits) -> tuple[MessageBatch, list[tuple[str, int]]]:
    """The same for a body with a column `topic`: (rows, [(topic, number of its adjacent rows)])."""
    batch, fields = _decode_arrow(raw, limits, {**_KNOWN, TOPIC: ("string", _topics, is_utf8)})
    return batch, fields[TOPIC]


def _decode_arrow(
    raw: bytes, limits: Limits, known: Mapping[str, _Kind]
) -> tuple[MessageBatch, dict[str, Any]]:
    """(batch, decoded columns that the bulk format does not have)."""
    library = pyarrow()
    schema, batches = read_stream(
        raw,
        bytes_max=limits.request_bytes_max,
        rows_max=limits.bulk_rows_max,
        check_schema=lambda schema: _check_schema(library, schema, known),
    )
    n = sum(batch.num_rows for batch in batches)
    if n == 0:
        raise Problem("bad_request", "a body has at least one row", field="n")
    fields: dict[str, Any] = {"n": n}
    for name in schema.names:
        column = ArrowColumn(library, name, batches)
        try:
            known[name][1](column, fields)
        except library.ArrowException as error:
            # For example, an unsigned 64-bit number that is too large.
            raise column.wrong(f"cannot be read: {str(error)[:200]}") from None
    if BACKOFF.name in fields:
        _put_backoffs(fields)
    apart = {name: fields.pop(name) for name in (TOPIC,) if name in fields}
    wire = encode_send(fields)
    if len(wire) > limits.request_bytes_max:
        raise Problem(
            "too_large",
            f"a body unpacks to at most {limits.request_bytes_max} bytes"
            + limit_note("request_bytes_max"),
        )
    batch = decode_send(wire, rows_max=limits.bulk_rows_max)
    batch.due_name = "deliver_at"
    return batch, apart


def _check_schema(library: Any, schema: Any, known: Mapping[str, _Kind]) -> None:
    for name in schema.names:
        if name not in known:
            raise Problem(
                "bad_request",
                f"unknown column {name[:64]!r}; known are {', '.join(known)}",
                field=name[:64],
            )
    if TOPIC in known and TOPIC not in schema.names:
        raise Problem("bad_request", "topic is missing, as a parameter or as a column", field=TOPIC)
    if len(set(schema.names)) < len(schema.names):
        raise Problem("bad_request", "two columns have the same name")
    if "value" not in schema.names:
        raise Problem("bad_request", "the column value is missing", field="value")
    if ("deliver_at" in schema.names) == ("delay_ms" in schema.names):
        raise Problem(
            "bad_request", "exactly one of deliver_at and delay_ms is needed", field="deliver_at"
        )
    for field in schema:
        wanted, _, fits = known[field.name]
        if not fits(library.types, field.type):
            kind = str(field.type)[:100]
            raise Problem(
                "bad_request", f"{field.name} must be {wanted}, not {kind}", field=field.name
            )


def _topics(column: ArrowColumn, fields: dict[str, Any]) -> None:
    """Topics as runs of adjacent rows."""
    column.refuse_nulls()
    runs: list[tuple[str, int]] = []
    row = 0
    for chunk in column.chunks:
        encoded = column.library.compute.run_end_encode(chunk)
        ends = np.asarray(encoded.run_ends).tolist()
        sizes = np.diff(ends, prepend=0).tolist()
        for name, n in zip(encoded.values.to_pylist(), sizes, strict=True):
            PART_TOPIC.check(name, None, row)
            before = runs.pop()[1] if runs and runs[-1][0] == name else 0
            runs.append((name, before + n))
            row += n
    fields[TOPIC] = runs


def _value(column: ArrowColumn, fields: dict[str, Any]) -> None:
    column.refuse_nulls()
    put_texts(fields, "body", "bodies", texts_of(column.library, column.chunks))


def _text(column: ArrowColumn, fields: dict[str, Any]) -> None:
    empty = column.library.scalar(b"").cast(column.chunks[0].type)
    texts = texts_of(column.library, column.filled(empty))
    put_texts(fields, column.name, column.name, texts)


def _deliver_at(column: ArrowColumn, fields: dict[str, Any]) -> None:
    column.refuse_nulls()
    parts = [column.int64(chunk) for chunk in column.chunks]
    times = parts[0] if len(parts) == 1 else np.concatenate(parts)
    per_s = _PER_S[column.chunks[0].type.unit]
    if per_s > 1_000:
        per_ms = per_s // 1_000
        # Two negations round up. The lowest int64 cannot be negated, so it is raised by one.
        times = -(-np.maximum(times, -(2**63) + 1) // per_ms)
    elif per_s < 1_000:
        if int(times.max()) > 2**53 or int(times.min()) < -(2**53):
            raise column.wrong("is out of range", int(np.argmax(np.abs(times))))
        times = times * 1_000
    put_numbers(fields, "deliver_at_ms", times)


def _delay_ms(column: ArrowColumn, fields: dict[str, Any]) -> None:
    column.refuse_nulls()
    put_numbers(fields, "delay_ms", np.concatenate([column.int64(c) for c in column.chunks]))


def _integers(column: ArrowColumn, fields: dict[str, Any]) -> None:
    field = COLUMNS[column.name]
    member, null = field.member, field.absent
    assert isinstance(member, Int), "that is how it came here"
    if all(chunk.null_count == len(chunk) for chunk in column.chunks):
        return
    chunks = [chunk.cast(column.library.int64()) for chunk in column.chunks]
    parts = [column.int64(chunk.fill_null(null) if chunk.null_count else chunk) for chunk in chunks]
    values = np.concatenate(parts)
    column.check(member, values, present_in(column.chunks))
    put_numbers(fields, column.name, values)


def _merge(column: ArrowColumn, fields: dict[str, Any]) -> None:
    """One word for all rows, because a bulk body has one."""
    words = [word for chunk in column.chunks for word in chunk.to_pylist()]
    other = next((row for row, word in enumerate(words) if word != words[0]), None)
    if other is not None:
        raise column.wrong("has two modes; send a body for each, the second is", other)
    if words[0] is None:
        return
    if words[0] not in MERGE_MODES:
        raise column.wrong(f"must be one of {', '.join(MERGE_MODES)}; a different word is", 0)
    fields[MERGE.name] = words[0]


def _backoff(column: ArrowColumn, fields: dict[str, Any]) -> None:
    """An own backoff for each row that sets any part of one; `_put_backoffs` stores it later."""
    kind = column.chunks[0].type
    n = sum(len(chunk) for chunk in column.chunks)
    said: dict[str, npt.NDArray[Any]] = {}
    any_said = np.zeros(n, np.bool_)
    for member in BACKOFF.shape.members:
        at = kind.get_field_index(member.name)
        if at < 0:
            continue
        assert isinstance(member, (Int, Number)), "a backoff's parts are numbers"
        parts = [chunk.flatten()[at] for chunk in column.chunks]
        present = present_in(parts)
        dtype = np.int64 if isinstance(member, Int) else np.float64
        values = np.concatenate(
            [p.fill_null(0).to_numpy(zero_copy_only=False).astype(dtype) for p in parts]
        )
        column.check(member, values, present)
        said[member.name] = np.where(present, values, NOT_SAID)
        any_said |= present
    fields[BACKOFF.name] = any_said, own_backoff_entries(n, said)


def _put_backoffs(fields: dict[str, Any]) -> None:
    """Insert backoffs in front of their rows' headers: the bulk format has no backoff column."""
    any_said, entries = fields.pop(BACKOFF.name)
    block = np.frombuffer(fields.get("headers", b""), np.uint8)
    sizes = np.zeros(len(entries), np.int64) + fields.get("headers_size", 0)
    starts = (np.cumsum(sizes) - sizes)[any_said]
    inserted = entries[any_said].view(np.uint8)
    joined = np.insert(block, np.repeat(starts, OWN_BACKOFF_SIZE), inserted).tobytes()
    put_texts(fields, "headers", "headers", (sizes + OWN_BACKOFF_SIZE * any_said, joined))


# --------------------------------------------------------------------------- lists


def _lists(column: ArrowColumn) -> tuple[Int64Array, list[Any]]:
    """(number of values of each row, the values of all rows)."""
    counts, values = [], []
    for chunk in column.chunks:
        wide = column.library.types.is_large_list(chunk.type)
        ends = values_of(chunk, "<i8" if wide else "<i4", len(chunk) + 1)
        lengths = (ends[1:] - ends[:-1]).astype(np.int64)
        if chunk.null_count:
            # A null list may have a range of values, which must be ignored.
            lengths[chunk.is_null().to_numpy(zero_copy_only=False)] = 0
        counts.append(lengths)
        values.append(_as_list(column.library, chunk).flatten())
    return np.concatenate(counts), values


def _as_list(library: Any, chunk: Any) -> Any:
    """Cast a map to a list of pairs, because pyarrow cannot flatten a map."""
    kind = chunk.type
    if not library.types.is_map(kind):
        return chunk
    pair = [library.field("key", kind.key_type), library.field("value", kind.item_type)]
    return chunk.cast(library.list_(library.struct(pair)))


def _tags(column: ArrowColumn, fields: dict[str, Any]) -> None:
    """Tags, joined by newlines."""
    counts, values = _lists(column)
    null = first_null(values)
    if null is not None:
        raise column.wrong("holds a null", row_of(counts, null))
    sizes, block = texts_of(column.library, values)
    raw = np.frombuffer(block, np.uint8)
    breaks = np.flatnonzero(raw == ord("\n"))
    if len(breaks):
        at = int(np.searchsorted(np.cumsum(sizes), breaks[0], side="right"))
        raise column.wrong("have no newlines, but one is there", row_of(counts, at))
    if int(np.count_nonzero(sizes == 0)):
        raise column.wrong("has an empty one", row_of(counts, int(np.argmin(sizes))))
    first = np.zeros(len(sizes), np.bool_)
    first[(np.cumsum(counts) - counts)[counts > 0]] = True
    starts = np.cumsum(sizes) - sizes
    joined = np.insert(raw, starts[~first], ord("\n")).tobytes()
    put_texts(fields, "tags", "tags", (_sums(sizes + ~first, counts), joined))


def _headers(column: ArrowColumn, fields: dict[str, Any]) -> None:
    """A msgpack map for each row that has headers."""
    counts, values = _lists(column)
    pairs = int(counts.sum())
    if pairs == 0:
        return
    if int(counts.max()) > _SIZE_MAX:
        raise column.wrong("are too many", int(np.argmax(counts)))
    keys, texts = [], []
    for chunk in values:
        key, text = chunk.flatten()
        keys.append(key)
        texts.append(text.fill_null(column.library.scalar(b"").cast(text.type)))
    null = first_null(keys)
    if null is not None:
        raise column.wrong("has a null for a key", row_of(counts, null))
    (key_sizes, key_block), (text_sizes, text_block) = (
        texts_of(column.library, keys),
        texts_of(column.library, texts),
    )
    largest = np.maximum(key_sizes, text_sizes)
    if int(largest.max()) > _SIZE_MAX:
        raise column.wrong("are too long", row_of(counts, int(np.argmax(largest))))
    rows = np.flatnonzero(counts)
    heads = [_map_heads(counts[rows]), _text_heads(key_sizes), _text_heads(text_sizes)]
    source = b"".join((*(head for head, _ in heads), key_block, text_block))
    bases = np.cumsum([0, *(len(head) for head, _ in heads), len(key_block)])
    (_, map_sizes), (_, key_heads), (_, text_heads) = heads
    # Each head is at the end of its three bytes.
    ends = 3 * np.arange(1, pairs + 1, dtype=np.int64)
    # Five ranges for each pair: the head of its row's map (empty except for the row's first pair),
    # the head of the key, the key, the head of the text, the text.
    starts, sizes = np.zeros((pairs, 5), np.int64), np.zeros((pairs, 5), np.int64)
    first = (np.cumsum(counts) - counts)[rows]
    starts[first, 0], sizes[first, 0] = ends[: len(rows)] - map_sizes, map_sizes
    starts[:, 1], sizes[:, 1] = bases[1] + ends - key_heads, key_heads
    starts[:, 2], sizes[:, 2] = bases[3] + np.cumsum(key_sizes) - key_sizes, key_sizes
    starts[:, 3], sizes[:, 3] = bases[2] + ends - text_heads, text_heads
    starts[:, 4], sizes[:, 4] = bases[4] + np.cumsum(text_sizes) - text_sizes, text_sizes
    packed = _picked(source, starts.ravel(), sizes.ravel())
    put_texts(fields, "headers", "headers", (_sums(sizes.sum(axis=1), counts), packed))


def _picked(source: bytes, starts: Int64Array, sizes: Int64Array) -> bytes:
    """Concatenate many short ranges; byte indexes are fast because each has only a few bytes."""
    ends = np.cumsum(sizes)
    at = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]))
    return np.frombuffer(source, np.uint8)[at].tobytes()


def _map_heads(lengths: Int64Array) -> tuple[bytes, Int64Array]:
    """msgpack heads of maps, each at the end of three bytes; and their sizes."""
    sizes = np.where(lengths < 16, 1, 3)
    last = np.where(sizes == 1, 0x80 | lengths, lengths & 0xFF)
    return _three(np.full(len(lengths), 0xDE), lengths >> 8, last), sizes


def _text_heads(lengths: Int64Array) -> tuple[bytes, Int64Array]:
    """The same of texts."""
    sizes = np.where(lengths < 32, 1, np.where(lengths < 256, 2, 3))
    last = np.where(sizes == 1, 0xA0 | lengths, lengths & 0xFF)
    middle = np.where(sizes == 2, 0xD9, lengths >> 8)
    return _three(np.full(len(lengths), 0xDA), middle, last), sizes


def _three(*columns: Int64Array) -> bytes:
    return np.stack(columns, axis=1).astype(np.uint8).tobytes()


def _sums(sizes: Int64Array, counts: Int64Array) -> Int64Array:
    """The sum of the sizes of each row's values; `counts` = the number of values of each row."""
    ends = np.cumsum(counts)
    total = np.concatenate(([0], np.cumsum(sizes)))
    return np.asarray(total[ends] - total[ends - counts], np.int64)


# --------------------------------------------------------------------------- types


_Kind: TypeAlias = tuple[
    str, Callable[[ArrowColumn, dict[str, Any]], None], Callable[[Any, Any], bool]
]
_KINDS: Final[dict[type, _Kind]] = {
    Text: ("string", _text, is_utf8),
    Int: ("an integer", _integers, is_integer),
    TextList: ("list<string>", _tags, are_tags),
    TextMap: (_LISTED, _headers, are_headers),
    Choice: ("string", _merge, is_utf8),
    Nested: (
        "struct<first_ms: int64, max_ms: int64, factor: double, jitter: double>, or some of these",
        _backoff,
        is_backoff,
    ),
}
"""Type, decoder and type check of a column, by the kind of its field."""
_KNOWN: Final[dict[str, _Kind]] = {
    "value": (_TEXTS, _value, is_text),
    "deliver_at": ("timestamp", _deliver_at, is_time),
    "delay_ms": ("an integer", _delay_ms, is_integer),
    **{field.name: _KINDS[type(field.member)] for field in FIELDS},
}
"""Description of the type, decoder and type check of each column, by name."""


# --------------------------------------------------------------------- bodies of any media type

FORMS: Final = (BULK, ARROW)
ARROW_INLINE_BYTES_MAX: Final = 2 << 20
"""An Arrow body up to this size is converted on the loop, in a few ms; larger ones in a thread."""


async def read_batch(ctx: Context) -> MessageBatch:
    """The rows of a request's body.

    Raises a Problem or BatchError if the body is malformed or has another media type.
    """
    kind = ctx.form.kind
    if kind not in FORMS:
        raise Problem(
            "unsupported", f"content type {kind!r} is not read here; use {', '.join(FORMS)}"
        )
    wire, limits = await ctx.body(), ctx.node.engine.limits
    if kind == BULK:
        return decoded_bulk(wire, limits)
    try:
        if len(wire) <= ARROW_INLINE_BYTES_MAX:
            return decode_arrow(wire, limits)
        batch = await ctx.node.machine.in_thread(partial(decode_arrow, wire, limits))
    except MemoryError:
        raise no_memory() from None
    if ctx.changes:
        # The node may have lost its leadership since the body arrived.
        ctx.node.role.check()
    return batch


async def read_topics(ctx: Context) -> tuple[MessageBatch, list[tuple[str, int]]]:
    """The rows of an Arrow body with a column `topic`: (rows, [(topic, its adjacent rows)])."""
    if ctx.form.kind != ARROW:
        raise Problem(
            "bad_request", f"topic is missing; only {ARROW} may have it as a column", field="topic"
        )
    wire = await ctx.body()
    try:
        # In a thread whatever its size: its rows are few for each topic, so its topics are many.
        found = await ctx.node.machine.in_thread(
            partial(decode_topics, wire, ctx.node.engine.limits)
        )
    except MemoryError:
        raise no_memory() from None
    ctx.node.role.check()
    return found


def decoded_bulk(wire: bytes, limits: Limits) -> MessageBatch:
    """The rows of a bulk body. Raises a Problem or BatchError."""
    try:
        return decode_send(wire, rows_max=limits.bulk_rows_max)
    except MemoryError:
        raise no_memory() from None
