"""Arrow bodies of sends and of transaction parts: columns in, a batch in the bulk form out.

Nothing is done row by row: offsets and values are viewed by numpy, and what the log stores (the
bulk body, see `storage.batch`) is put together from whole blocks. A row's time is rounded up to
the millisecond, so that nothing comes before its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from delaylog.broker.calls.forms.arrow_stream import pyarrow, read_stream
from delaylog.broker.calls.problems import Problem
from delaylog.broker.engine.limits import Limits
from delaylog.storage.columns.questions import Mask, alike
from delaylog.storage.layout import Int64Array
from delaylog.storage.messages.batch import MessageBatch, decode_send, encode_send
from delaylog.storage.messages.members import Int, Number, Text, TextList, TextMap
from delaylog.storage.messages.message_fields import BACKOFF, COLUMNS, FIELDS, MERGE
from delaylog.storage.messages.own_backoff import NOT_SAID, OWN_BACKOFF_SIZE, own_backoff_entries
from delaylog.storage.messages.shape import Nested

_TEXTS: Final = "string or binary"
_LISTED: Final = "list<struct<key: string, value: binary>> or map<string, binary>"
_SIZE_MAX: Final = 2**16 - 1
"""The largest text but a body: its size is an u16."""
_PER_S: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
Texts = tuple[Int64Array, bytes | memoryview]
"""Sizes, and all values one after another."""


def decode_arrow(raw: bytes, limits: Limits) -> MessageBatch:
    """The rows of an Arrow IPC stream as a batch; its `wire` is what a bulk body would have been.

    Raises a Problem that names the column, and the row where it is about one.
    """
    library = pyarrow()
    schema, batches = read_stream(
        raw,
        bytes_max=limits.request_bytes_max,
        rows_max=limits.bulk_rows_max,
        check_schema=lambda schema: _check_schema(library, schema),
    )
    n = sum(batch.num_rows for batch in batches)
    if n == 0:
        raise Problem("bad_request", "a body has at least one row", field="n")
    fields: dict[str, Any] = {"n": n}
    for name in schema.names:
        column = _Column(library, name, batches)
        try:
            _KNOWN[name][1](column, fields)
        except library.ArrowException as error:
            # A number of 64 bits without a sign, say, that is too large.
            raise column.wrong(f"cannot be read: {str(error)[:200]}") from None
    if BACKOFF.name in fields:
        _put_backoffs(fields)
    wire = encode_send(fields)
    if len(wire) > limits.request_bytes_max:
        raise Problem("too_large", f"a body unpacks to at most {limits.request_bytes_max} bytes")
    return decode_send(wire, rows_max=limits.bulk_rows_max)


def _check_schema(library: Any, schema: Any) -> None:
    known = ", ".join(_KNOWN)
    for name in schema.names:
        if name not in _KNOWN:
            raise Problem(
                "bad_request", f"unknown column {name[:64]!r}; known are {known}", field=name[:64]
            )
    if len(set(schema.names)) < len(schema.names):
        raise Problem("bad_request", "two columns have the same name")
    if "value" not in schema.names:
        raise Problem("bad_request", "the column value is missing", field="value")
    if ("deliver_at" in schema.names) == ("delay_ms" in schema.names):
        raise Problem(
            "bad_request", "exactly one of deliver_at and delay_ms is needed", field="deliver_at"
        )
    for field in schema:
        wanted, _, fits = _KNOWN[field.name]
        if not fits(library.types, field.type):
            kind = str(field.type)[:100]
            raise Problem(
                "bad_request", f"{field.name} must be {wanted}, not {kind}", field=field.name
            )


class _Column:
    """One column through all batches of a stream."""

    __slots__ = ("chunks", "library", "name")

    def __init__(self, library: Any, name: str, batches: list[Any]) -> None:
        self.library = library
        self.name = name
        self.chunks = [batch.column(name) for batch in batches]

    def refuse_nulls(self) -> None:
        """Every row has a value, or the first that has none is named."""
        row = 0
        for chunk in self.chunks:
            if chunk.null_count:
                row += int(np.argmax(chunk.is_null().to_numpy(zero_copy_only=False)))
                raise self.wrong("is null", row)
            row += len(chunk)

    def wrong(self, what: str, row: int | None = None) -> Problem:
        """A refusal that names the column."""
        where = "" if row is None else f" in row {row}"
        return Problem("bad_request", f"{self.name} {what}{where}", field=self.name, item=row)

    def check(self, member: Int | Number, values: npt.NDArray[Any], present: Mask) -> None:
        """Values that are present lie in a member's bounds, or the first that does not is named."""
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
        return _view(chunk, "<i8", len(chunk))


def _view(chunk: Any, dtype: str, count: int) -> np.ndarray:
    """Numbers or offsets of a chunk. Its buffer may hold more, and half of one at its end."""
    buffer = chunk.buffers()[1]
    return np.frombuffer(buffer, dtype, chunk.offset + count)[chunk.offset :]


def _texts(library: Any, chunks: list[Any]) -> Texts:
    """Sizes and bytes of string or binary chunks without nulls."""
    sizes, blocks = [], []
    for chunk in chunks:
        if len(chunk) == 0:
            continue
        types, kind = library.types, chunk.type
        wide = types.is_large_binary(kind) or types.is_large_string(kind)
        data = chunk.buffers()[2]
        ends = _view(chunk, "<i8" if wide else "<i4", len(chunk) + 1)
        sizes.append((ends[1:] - ends[:-1]).astype(np.int64))
        view = memoryview(b"" if data is None else data)
        blocks.append(view[int(ends[0]) : int(ends[-1])])
    if len(sizes) == 1:
        return sizes[0], blocks[0]
    return (np.concatenate(sizes) if sizes else np.zeros(0, np.int64)), b"".join(blocks)


def _put(fields: dict[str, Any], name: str, block_name: str, texts: Texts) -> None:
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


def _value(column: _Column, fields: dict[str, Any]) -> None:
    column.refuse_nulls()
    _put(fields, "body", "bodies", _texts(column.library, column.chunks))


def _text(column: _Column, fields: dict[str, Any]) -> None:
    empty = column.library.scalar(b"").cast(column.chunks[0].type)
    texts = _texts(column.library, column.filled(empty))
    _put(fields, column.name, column.name, texts)


def _deliver_at(column: _Column, fields: dict[str, Any]) -> None:
    column.refuse_nulls()
    parts = [column.int64(chunk) for chunk in column.chunks]
    times = parts[0] if len(parts) == 1 else np.concatenate(parts)
    per_s = _PER_S[column.chunks[0].type.unit]
    if per_s > 1_000:
        per_ms = per_s // 1_000
        # Rounded up by two negations, of which the lowest number has none.
        times = -(-np.maximum(times, -(2**63) + 1) // per_ms)
    elif per_s < 1_000:
        if int(times.max()) > 2**53 or int(times.min()) < -(2**53):
            raise column.wrong("lies too far off", int(np.argmax(np.abs(times))))
        times = times * 1_000
    _put_numbers(fields, "deliver_at_ms", times)


def _delay_ms(column: _Column, fields: dict[str, Any]) -> None:
    column.refuse_nulls()
    _put_numbers(fields, "delay_ms", np.concatenate([column.int64(c) for c in column.chunks]))


def _integers(column: _Column, fields: dict[str, Any]) -> None:
    field = COLUMNS[column.name]
    member, null = field.member, field.absent
    assert isinstance(member, Int), "that is how it came here"
    if all(chunk.null_count == len(chunk) for chunk in column.chunks):
        return
    chunks = [chunk.cast(column.library.int64()) for chunk in column.chunks]
    parts = [column.int64(chunk.fill_null(null) if chunk.null_count else chunk) for chunk in chunks]
    values = np.concatenate(parts)
    column.check(member, values, _present(column.chunks))
    _put_numbers(fields, column.name, values)


def _backoff(column: _Column, fields: dict[str, Any]) -> None:
    """A backoff for each row that says any part of one; `_put_backoffs` puts them in front."""
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
        present = _present(parts)
        dtype = np.int64 if isinstance(member, Int) else np.float64
        values = np.concatenate(
            [p.fill_null(0).to_numpy(zero_copy_only=False).astype(dtype) for p in parts]
        )
        column.check(member, values, present)
        said[member.name] = np.where(present, values, NOT_SAID)
        any_said |= present
    fields[BACKOFF.name] = any_said, own_backoff_entries(n, said)


def _put_backoffs(fields: dict[str, Any]) -> None:
    """Backoffs have no column of their own: they go in front of their rows' headers."""
    any_said, entries = fields.pop(BACKOFF.name)
    block = np.frombuffer(fields.get("headers", b""), np.uint8)
    sizes = np.zeros(len(entries), np.int64) + fields.get("headers_size", 0)
    starts = (np.cumsum(sizes) - sizes)[any_said]
    inserted = entries[any_said].view(np.uint8)
    joined = np.insert(block, np.repeat(starts, OWN_BACKOFF_SIZE), inserted).tobytes()
    _put(fields, "headers", "headers", (sizes + OWN_BACKOFF_SIZE * any_said, joined))


def _present(chunks: list[Any]) -> Mask:
    """Which rows are not null."""
    return np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks])


def _put_numbers(fields: dict[str, Any], name: str, values: Int64Array) -> None:
    fields[name] = int(values[0]) if alike(values) else values


# --------------------------------------------------------------------------- lists


def _lists(column: _Column) -> tuple[Int64Array, list[Any]]:
    """(how many values each row has, the values of all rows)."""
    counts, values = [], []
    for chunk in column.chunks:
        wide = column.library.types.is_large_list(chunk.type)
        ends = _view(chunk, "<i8" if wide else "<i4", len(chunk) + 1)
        lengths = (ends[1:] - ends[:-1]).astype(np.int64)
        if chunk.null_count:
            # Whatever stands there, it is no value of the list.
            lengths[chunk.is_null().to_numpy(zero_copy_only=False)] = 0
        counts.append(lengths)
        values.append(_as_list(column.library, chunk).flatten())
    return np.concatenate(counts), values


def _as_list(library: Any, chunk: Any) -> Any:
    """A map is a list of pairs, but does not let itself be flattened."""
    kind = chunk.type
    if not library.types.is_map(kind):
        return chunk
    pair = [library.field("key", kind.key_type), library.field("value", kind.item_type)]
    return chunk.cast(library.list_(library.struct(pair)))


def _row_of(counts: Int64Array, value: int) -> int:
    """The row that a value of a list stands in."""
    return int(np.searchsorted(np.cumsum(counts), value, side="right"))


def _first_null(chunks: list[Any]) -> int | None:
    at = 0
    for chunk in chunks:
        if chunk.null_count:
            return at + int(np.argmax(chunk.is_null().to_numpy(zero_copy_only=False)))
        at += len(chunk)
    return None


def _tags(column: _Column, fields: dict[str, Any]) -> None:
    """Tags, joined by newlines."""
    counts, values = _lists(column)
    null = _first_null(values)
    if null is not None:
        raise column.wrong("holds a null", _row_of(counts, null))
    sizes, block = _texts(column.library, values)
    raw = np.frombuffer(block, np.uint8)
    breaks = np.flatnonzero(raw == ord("\n"))
    if len(breaks):
        at = int(np.searchsorted(np.cumsum(sizes), breaks[0], side="right"))
        raise column.wrong("have no newlines, but one is there", _row_of(counts, at))
    if int(np.count_nonzero(sizes == 0)):
        raise column.wrong("has an empty one", _row_of(counts, int(np.argmin(sizes))))
    first = np.zeros(len(sizes), np.bool_)
    first[(np.cumsum(counts) - counts)[counts > 0]] = True
    starts = np.cumsum(sizes) - sizes
    joined = np.insert(raw, starts[~first], ord("\n")).tobytes()
    _put(fields, "tags", "tags", (_sums(sizes + ~first, counts), joined))


def _headers(column: _Column, fields: dict[str, Any]) -> None:
    """A msgpack map for each row that has headers, with lengths of 16 bits everywhere."""
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
    null = _first_null(keys)
    if null is not None:
        raise column.wrong("has a null for a key", _row_of(counts, null))
    (key_sizes, key_block), (text_sizes, text_block) = (
        _texts(column.library, keys),
        _texts(column.library, texts),
    )
    largest = np.maximum(key_sizes, text_sizes)
    if int(largest.max()) > _SIZE_MAX:
        raise column.wrong("are too long", _row_of(counts, int(np.argmax(largest))))
    rows = np.flatnonzero(counts)
    heads = [_heads(0xDE, counts[rows]), _heads(0xDA, key_sizes), _heads(0xDA, text_sizes)]
    source = b"".join((*heads, key_block, text_block))
    bases = np.cumsum([0, *(len(head) for head in heads), len(key_block)])
    number = 3 * np.arange(pairs, dtype=np.int64)
    # Five ranges a pair: the head of its row's map (of no size but for the row's first pair), the
    # head of the key, the key, the head of the text, the text.
    starts = np.zeros((pairs, 5), np.int64)
    sizes = np.full((pairs, 5), 3, np.int64)
    sizes[:, 0] = 0
    first = (np.cumsum(counts) - counts)[rows]
    starts[first, 0] = 3 * np.arange(len(rows))
    sizes[first, 0] = 3
    starts[:, 1] = bases[1] + number
    starts[:, 2], sizes[:, 2] = bases[3] + np.cumsum(key_sizes) - key_sizes, key_sizes
    starts[:, 3] = bases[2] + number
    starts[:, 4], sizes[:, 4] = bases[4] + np.cumsum(text_sizes) - text_sizes, text_sizes
    packed = _picked(source, starts.ravel(), sizes.ravel())
    _put(fields, "headers", "headers", (_sums(sizes.sum(axis=1), counts), packed))


def _picked(source: bytes, starts: Int64Array, sizes: Int64Array) -> bytes:
    """Ranges of a few bytes each, one after another: byte by byte, since they are so short."""
    ends = np.cumsum(sizes)
    at = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]))
    return np.frombuffer(source, np.uint8)[at].tobytes()


def _heads(kind: int, lengths: Int64Array) -> bytes:
    """msgpack heads with lengths of 16 bits."""
    out = np.empty((len(lengths), 3), np.uint8)
    out[:, 0], out[:, 1], out[:, 2] = kind, lengths >> 8, lengths & 0xFF
    return out.tobytes()


def _sums(sizes: Int64Array, counts: Int64Array) -> Int64Array:
    """The sum of each row's values, of which it has so many."""
    ends = np.cumsum(counts)
    total = np.concatenate(([0], np.cumsum(sizes)))
    return np.asarray(total[ends] - total[ends - counts], np.int64)


# --------------------------------------------------------------------------- types


def _is_text(types: Any, kind: Any) -> bool:
    return any(
        is_kind(kind) for is_kind in (types.is_binary, types.is_large_binary, types.is_string)
    ) or types.is_large_string(kind)


def _is_utf8(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _are_tags(types: Any, kind: Any) -> bool:
    return _is_list(types, kind) and _is_utf8(types, kind.value_type)


def _are_headers(types: Any, kind: Any) -> bool:
    if types.is_map(kind):
        return _is_utf8(types, kind.key_type) and _is_text(types, kind.item_type)
    if not _is_list(types, kind) or not types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    named = [pair.field(at).name for at in range(pair.num_fields)] == ["key", "value"]
    return named and _is_utf8(types, pair.field(0).type) and _is_text(types, pair.field(1).type)


def _is_integer(types: Any, kind: Any) -> bool:
    return bool(types.is_integer(kind))


def _is_time(types: Any, kind: Any) -> bool:
    return bool(types.is_timestamp(kind))


def _is_backoff(types: Any, kind: Any) -> bool:
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


_Kind: TypeAlias = tuple[str, Callable[[_Column, dict[str, Any]], None], Callable[[Any, Any], bool]]
_KINDS: Final[dict[type, _Kind]] = {
    Text: ("string", _text, _is_utf8),
    Int: ("an integer", _integers, _is_integer),
    TextList: ("list<string>", _tags, _are_tags),
    TextMap: (_LISTED, _headers, _are_headers),
    Nested: (
        "struct<first_ms: int64, max_ms: int64, factor: double, jitter: double>, or some of these",
        _backoff,
        _is_backoff,
    ),
}
"""Columns by the kinds of fields."""
_KNOWN: Final[dict[str, _Kind]] = {
    "value": (_TEXTS, _value, _is_text),
    "deliver_at": ("timestamp", _deliver_at, _is_time),
    "delay_ms": ("an integer", _delay_ms, _is_integer),
    **{field.name: _KINDS[type(field.member)] for field in FIELDS if field.member is not MERGE},
}
"""What each column must be, how it is taken, and whether a type is right."""
