"""MessageBatch: many messages as columns, and the bulk wire format for them.

Messages travel inside the broker only in batches. A numeric column is one int (the same for all
rows) or an int64/uint array of n values; a text column is a pair of sizes and one contiguous block.
Decoding creates views of the client's bytes and never rebuilds them; the bytes themselves (`wire`)
become part of the SEND frame unchanged. The engine, not this module, decides about topic names,
defaults and due times.

Backoffs of many messages are read at once; `contract/own_backoff.py` declares the bytes of one,
since clients encode a backoff without NumPy. `BatchRanges` cuts a large batch into views. Several
`Single` messages of a send make one bulk body together: the maker of a `Single` has checked its
fields, by `pack_fields`, and the engine checks bodies and due times of all sends.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

import msgpack
import numpy as np
import numpy.typing as npt

from delaylog.contract.members import BatchError
from delaylog.contract.message_fields import COLUMNS, MERGE_MODES, TEXT_COLUMNS, put_columns
from delaylog.contract.own_backoff import (
    ARRAY,
    KINDS,
    NOT_SAID,
    OWN_BACKOFF_SIZE,
    PARTS,
    encode_own_backoff,
)
from delaylog.storage.layout import Int64Array

# -------------------------------------------------------------------- backoffs of many messages

OWN_BACKOFF: Final = np.dtype(
    [
        ("array", "u1"),
        ("first_kind", "u1"),
        ("first_ms", ">i8"),
        ("max_kind", "u1"),
        ("max_ms", ">i8"),
        ("factor_kind", "u1"),
        ("factor", ">f8"),
        ("jitter_kind", "u1"),
        ("jitter", ">f8"),
    ]
)
assert OWN_BACKOFF.itemsize == OWN_BACKOFF_SIZE
_KIND_NAMES: Final = ("array", *(f"{name.removesuffix('_ms')}_kind" for name in PARTS))
assert tuple(np.frombuffer(encode_own_backoff({}), OWN_BACKOFF)[0][list(_KIND_NAMES)]) == KINDS


def own_backoff_entries(n: int, said: Mapping[str, Any]) -> npt.NDArray[np.void]:
    """n backoffs. Each part is one value for all or an array of n, with NOT_SAID where absent."""
    entries = np.zeros(n, OWN_BACKOFF)
    for name, kind in zip(_KIND_NAMES, KINDS, strict=True):
        entries[name] = kind
    for name in PARTS:
        entries[name] = said.get(name, NOT_SAID)
    return entries


def have_own_backoff(
    block: bytes | memoryview, starts: Int64Array, sizes: Int64Array
) -> npt.NDArray[np.bool_]:
    """Which of the headers at these places of a block begin with a backoff."""
    out = np.zeros(len(starts), np.bool_)
    at = np.flatnonzero(sizes)
    out[at] = np.frombuffer(block, np.uint8)[starts[at]] == ARRAY
    return out


def own_backoffs(block: bytes | memoryview, starts: Int64Array) -> npt.NDArray[np.void]:
    """The backoffs at these places of a block."""
    raw = np.frombuffer(block, np.uint8)
    picked = raw[starts[:, None] + np.arange(OWN_BACKOFF_SIZE)]
    return np.ascontiguousarray(picked).view(OWN_BACKOFF)[:, 0]


# ---------------------------------------------------------------------- the batch and its bytes

Column: TypeAlias = int | npt.NDArray[Any]
Block: TypeAlias = bytes | memoryview

BATCH_VERSION: Final = 1

_NUMERIC: Final[dict[str, np.dtype[Any]]] = {
    "deliver_at_ms": np.dtype("<i8"),
    "delay_ms": np.dtype("<i8"),
    **{name: np.dtype(field.column) for name, field in COLUMNS.items() if not field.is_text},
}
_CONTAINERS_MAX: Final = 64
"""Most lists and maps of a bulk body, including the body itself."""
_TEXT: Final[dict[str, tuple[str, np.dtype[Any]]]] = {
    "body": ("bodies", np.dtype("<u4")),
    **{name: (name, np.dtype(field.column)) for name, field in TEXT_COLUMNS.items()},
}
_SCALAR: Final = ("v", "n", "merge", "producer", "sequence")
_KNOWN: Final = frozenset(
    [*_NUMERIC, *_SCALAR, *(block for block, _ in _TEXT.values()), *(f"{t}_size" for t in _TEXT)]
)


@dataclass(slots=True)
class TextColumn:
    """Sizes (one int, or an array of n) and the bytes of all values, one after another."""

    size: Column = 0
    block: Block = b""

    @property
    def empty(self) -> bool:
        """True when every value is the empty string."""
        return len(self.block) == 0

    def sizes(self, n: int) -> npt.NDArray[np.int64]:
        """The sizes as an int64 array of n."""
        return expand(self.size, n).astype(np.int64, copy=False)

    def values(self, n: int) -> list[bytes]:
        """Each value as bytes. It is a Python loop, for columns that need one anyway (hashes)."""
        if isinstance(self.size, int):
            step = self.size
            raw = bytes(self.block)
            return [raw[i * step : (i + 1) * step] for i in range(n)]
        ends = np.cumsum(self.size.astype(np.int64)).tolist()
        raw = bytes(self.block)
        return [raw[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@dataclass(slots=True)
class MessageBatch:
    """n messages as columns; exactly one of `deliver_at_ms` and `delay_ms` is set."""

    n: int
    deliver_at_ms: Column | None = None
    delay_ms: Column | None = None
    ttl_ms: Column | None = None
    priority: Column | None = None
    max_retry: Column | None = None
    body: TextColumn = field(default_factory=TextColumn)
    id: TextColumn = field(default_factory=TextColumn)
    key: TextColumn = field(default_factory=TextColumn)
    tags: TextColumn = field(default_factory=TextColumn)
    headers: TextColumn = field(default_factory=TextColumn)
    merge: str | None = None
    producer: str | None = None
    sequence: int | None = None
    wire: Block = b""
    id_hashes: npt.NDArray[np.uint64] | None = None
    """A cache, filled when they are first needed."""
    texts_checked: bool = False
    """Whether its ids, keys, tags and headers were checked, here or in the batches it is made of.
    """
    due_name: str = "deliver_at_ms"
    """What the sender calls the column of due times, for refusals."""
    _tag_values: list[bytes] | None = field(default=None, repr=False, compare=False)

    @property
    def tag_values(self) -> list[bytes]:
        """The tags of each message, joined by newlines. They are made once: the checks, the masks
        of the rows and the index of tags read them.
        """
        if self._tag_values is None:
            self._tag_values = self.tags.values(self.n)
        return self._tag_values

    @property
    def shape(self) -> tuple[object, ...]:
        """What batches must have in common to be joined: their columns and their merge."""
        return (
            self.merge,
            *(getattr(self, name) is None for name in _NUMERIC),
            *(getattr(self, name).empty for name in _TEXT),
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of all records."""
        return sum(len(memoryview(column.block)) for column in self._texts())

    def bytes_of(self, rows: npt.NDArray[np.int64] | None) -> int:
        """Bytes of the records of some rows; None = all."""
        if rows is None:
            return self.size_bytes
        return sum(int(column.sizes(self.n)[rows].sum()) for column in self._texts())

    def _texts(self) -> tuple[TextColumn, ...]:
        return (self.id, self.key, self.tags, self.headers, self.body)


assert COLUMNS.keys() <= {each.name for each in fields(MessageBatch)}, "a column for each field"


def has_own_backoffs(headers: TextColumn, n: int) -> npt.NDArray[np.bool_]:
    """Which values of a column of headers begin with a backoff."""
    sizes = headers.sizes(n)
    return have_own_backoff(headers.block, np.cumsum(sizes) - sizes, sizes)


def expand(column: Column, n: int) -> npt.NDArray[Any]:
    """The column as an array of n values."""
    return np.full(n, column, np.int64) if isinstance(column, int) else column


def column_min(column: Column) -> int:
    """Least value of a non-empty column."""
    return column if isinstance(column, int) else int(column.min())


def column_max(column: Column) -> int:
    """Greatest value of a non-empty column."""
    return column if isinstance(column, int) else int(column.max())


def unpack_map(wire: Block) -> dict[str, Any]:
    """Decode one msgpack map with string keys. Raises BatchError for anything else."""
    containers = 0

    def count(container: Any) -> Any:
        # A nested container takes one byte of the body and ninety of memory; no column has any.
        nonlocal containers
        containers += 1
        if containers > _CONTAINERS_MAX:
            raise ValueError(f"it contains more than {_CONTAINERS_MAX} lists and maps")
        return container

    try:
        fields = msgpack.unpackb(
            wire,
            raw=False,
            strict_map_key=True,
            max_map_len=64,
            max_array_len=64,
            list_hook=count,
            object_hook=count,
        )
    except (ValueError, msgpack.UnpackException, TypeError, RecursionError) as error:
        raise BatchError(f"the body is not one msgpack map: {error}") from None
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise BatchError("the body must be one msgpack map with text keys")
    return fields


def take_int(fields: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    """An optional integer member in [low, high]."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise BatchError(f"{name} must be an integer, not {type(value).__name__}", field=name)
    if not low <= value <= high:
        raise BatchError(f"{name} must lie between {low} and {high}, not {value}", field=name)
    return value


def take_column(
    fields: Mapping[str, Any], name: str, dtype: np.dtype[Any], n: int
) -> Column | None:
    """An optional numeric column: one number for all rows, or n values as little-endian bytes."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bytes):
        if len(value) != n * dtype.itemsize:
            raise BatchError(
                f"{name} has {len(value)} bytes, but {n} values of {dtype.itemsize} bytes need "
                f"{n * dtype.itemsize}",
                field=name,
            )
        return np.frombuffer(value, dtype)
    info = np.iinfo(dtype)
    return take_int(fields, name, int(info.min), int(info.max))


def _take_text(fields: Mapping[str, Any], name: str, n: int) -> TextColumn:
    block_name, dtype = _TEXT[name]
    size_name = f"{name}_size"
    block = fields.get(block_name)
    size = take_column(fields, size_name, dtype, n)
    if block is None and size is None:
        return TextColumn()
    if size is None:
        raise BatchError(f"{block_name} needs its sizes in {size_name}", field=size_name)
    if block is None:
        block = b""
    if not isinstance(block, bytes):
        raise BatchError(
            f"{block_name} must be bytes, not {type(block).__name__}", field=block_name
        )
    total = size * n if isinstance(size, int) else int(size.sum(dtype=np.int64))
    if total != len(block):
        raise BatchError(
            f"the sizes in {size_name} add up to {total}, but {block_name} has {len(block)} bytes",
            field=size_name,
        )
    return TextColumn(size, block)


def decode_send(wire: Block, *, rows_max: int) -> MessageBatch:
    """Decode a bulk send body as a batch of views. A BatchError names the column that is wrong.

    docs/HTTP.md, "Bulk bodies", describes the format.
    """
    return _batch(unpack_map(wire), wire, rows_max)


def batch_of_columns(columns: Mapping[str, Any]) -> MessageBatch:
    """The batch that `decode_send` makes of the bulk body of these columns (`encode_send`)."""
    fields = _fields(columns)
    return _batch(fields, bytes(msgpack.packb(fields)), fields["n"])


def _batch(fields: Mapping[str, Any], wire: Block, rows_max: int) -> MessageBatch:
    if not fields.keys() <= _KNOWN:
        name = next(name for name in fields if name not in _KNOWN)
        raise BatchError(f"unknown column {name[:64]!r}", field=name[:64])
    if fields.get("v") != BATCH_VERSION or isinstance(fields["v"], bool):
        raise BatchError(f"v must be {BATCH_VERSION}", field="v")
    n = take_int(fields, "n", 1, rows_max)
    if n is None:
        raise BatchError("n, the number of rows, is missing", field="n")
    batch = MessageBatch(n, wire=wire)
    for name, dtype in _NUMERIC.items():
        if name in fields:
            setattr(batch, name, take_column(fields, name, dtype, n))
    for name, (block_name, _) in _TEXT.items():
        if block_name in fields or f"{name}_size" in fields:
            setattr(batch, name, _take_text(fields, name, n))
    if (batch.deliver_at_ms is None) == (batch.delay_ms is None):
        raise BatchError(
            "exactly one of deliver_at_ms and delay_ms is needed", field="deliver_at_ms"
        )
    merge = fields.get("merge")
    if merge is not None and merge not in MERGE_MODES:
        raise BatchError(f"merge must be one of {', '.join(MERGE_MODES)}", field="merge")
    batch.merge = merge
    producer = fields.get("producer")
    if producer is not None and not (isinstance(producer, str) and 1 <= len(producer) <= 255):
        raise BatchError("producer must be text of 1 to 255 characters", field="producer")
    batch.producer = producer
    batch.sequence = take_int(fields, "sequence", 0, 2**63 - 1)
    if (batch.producer is None) != (batch.sequence is None):
        raise BatchError("producer and sequence come together", field="sequence")
    return batch


def join_batches(batches: Sequence[MessageBatch]) -> MessageBatch:
    """Join batches that have the same shape and no producer."""
    first = batches[0]
    if len(batches) == 1:
        return first
    joined = batch_of_columns(_joined_columns(batches))
    joined.texts_checked = all(batch.texts_checked for batch in batches)
    return joined


def with_wire(batch: MessageBatch) -> MessageBatch:
    """The same rows with a bulk body of their own, for a batch that is a view of another one."""
    # Decoded anew, so that no view of the other batch's bytes is kept.
    own = decode_send(encode_send(_joined_columns([batch])), rows_max=batch.n)
    own.texts_checked = batch.texts_checked
    return own


def _joined_columns(batches: Sequence[MessageBatch]) -> dict[str, Any]:
    first, rows = batches[0], [batch.n for batch in batches]
    fields: dict[str, Any] = {"n": sum(rows)}
    if first.merge is not None:
        fields["merge"] = first.merge
    for name in _NUMERIC:
        if getattr(first, name) is not None:
            fields[name] = _joined([getattr(batch, name) for batch in batches], rows)
    for name, (block_name, _) in _TEXT.items():
        columns = [getattr(batch, name) for batch in batches]
        if not columns[0].empty:
            fields[f"{name}_size"] = _joined([column.size for column in columns], rows)
            fields[block_name] = b"".join([column.block for column in columns])
    return fields


def _joined(columns: Sequence[Column], rows: Sequence[int]) -> Column:
    """Concatenate columns."""
    first = columns[0]
    if isinstance(first, int) and all(isinstance(each, int) and each == first for each in columns):
        return first
    return np.concatenate([expand(column, n) for column, n in zip(columns, rows, strict=True)])


def encode_send(columns: Mapping[str, Any]) -> bytes:
    """Encode columns (ints, numpy arrays, bytes, text) as a bulk send body."""
    return bytes(msgpack.packb(_fields(columns)))


def _fields(columns: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"v": BATCH_VERSION}
    for name, value in columns.items():
        if isinstance(value, np.ndarray):
            dtype = _NUMERIC.get(name) or _TEXT[name.removesuffix("_size")][1]
            value = np.ascontiguousarray(value, dtype).tobytes()
        fields[name] = value
    return fields


# ---------------------------------------------------------------------- ranges of a large batch

_TEXTS: Final = ("body", "id", "key", "tags", "headers")
_NUMBERS: Final = ("deliver_at_ms", "delay_ms", "ttl_ms", "priority", "max_retry")
assert {*_TEXTS, *_NUMBERS} < {field.name for field in fields(MessageBatch)}


class BatchRanges:
    """Takes ranges of rows from one batch."""

    def __init__(self, batch: MessageBatch) -> None:
        self.batch = batch
        self._ends: dict[str, npt.NDArray[np.int64]] = {
            name: np.cumsum(column.size, dtype=np.int64)
            for name in _TEXTS
            if not isinstance((column := getattr(batch, name)).size, int)
        }

    @property
    def size_bytes(self) -> int:
        """The size of the batch in memory."""
        return len(self.batch.wire)

    def take(self, first: int, stop: int) -> MessageBatch:
        """The batch of the rows [first, stop)."""
        batch = self.batch
        assert 0 <= first < stop <= batch.n, "a range of rows lies inside its batch"
        out = MessageBatch(stop - first, merge=batch.merge, texts_checked=batch.texts_checked)
        for name in _NUMBERS:
            column: Column | None = getattr(batch, name)
            if column is not None and not isinstance(column, int):
                column = column[first:stop]
            setattr(out, name, column)
        for name in _TEXTS:
            setattr(out, name, self._text(name, first, stop))
        return out

    def _text(self, name: str, first: int, stop: int) -> TextColumn:
        column: TextColumn = getattr(self.batch, name)
        block = memoryview(column.block)
        if isinstance(column.size, int):
            return TextColumn(column.size, block[first * column.size : stop * column.size])
        ends = self._ends[name]
        start = int(ends[first - 1]) if first else 0
        return TextColumn(column.size[first:stop], block[start : int(ends[stop - 1])])


# -------------------------------------------------------------------- single messages of a send

_PACKER: Final = msgpack.Packer()


@dataclass(slots=True)
class Single:
    """One message to send."""

    body: bytes
    due_ms: int
    """Absolute time, or a delay when `relative`."""
    relative: bool
    fields: Mapping[str, Any] | None = None
    """Packed (`message_fields.pack_fields`); None if only body and time are set."""
    merge: str | None = None

    @property
    def n(self) -> int:
        """Number of rows in a batch: one."""
        return 1

    @property
    def size_bytes(self) -> int:
        """Bytes that count against the limit of a request."""
        return len(self.body)

    @property
    def id(self) -> bytes:
        """The id chosen by the client, or empty."""
        return b"" if self.fields is None else self.fields.get("id", b"")


def record_size(single: Single) -> int:
    """Bytes of the message's record."""
    size = len(single.body)
    if single.fields is not None:
        size += sum(len(each) for each in single.fields.values() if isinstance(each, bytes))
    return size


def requested_times(singles: Sequence[Single], now_ms: int) -> list[int]:
    """The due time that each message asks for."""
    return [single.due_ms + now_ms if single.relative else single.due_ms for single in singles]


def encode_singles(singles: Sequence[Single], due_ms: list[int], merge: str | None) -> bytes:
    """A bulk body of single messages with these due times."""
    packed: bytes = _PACKER.pack(columns_of(singles, due_ms, merge))
    return packed


def columns_of(
    singles: Sequence[Single], due_ms: list[int], merge: str | None
) -> dict[str, object]:
    """The members of that bulk body."""
    bodies: list[bytes] = []
    plain = True
    for single in singles:
        bodies.append(single.body)
        plain = plain and not single.fields
    columns: dict[str, object] = {
        "v": BATCH_VERSION,
        "n": len(bodies),
        "deliver_at_ms": array("q", due_ms).tobytes(),
        "body_size": array("I", map(len, bodies)).tobytes(),
        "bodies": b"".join(bodies),
    }
    if merge is not None:
        columns["merge"] = merge
    if not plain:
        put_columns(columns, [single.fields for single in singles])
    return columns
