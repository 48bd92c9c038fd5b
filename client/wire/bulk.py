"""The bulk bodies of the HTTP API: one msgpack map of columns. Encodes requests, decodes answers.

On the wire a column of integers is one int for all rows, or n little-endian values; a text column
is a column of sizes and one block of bytes. Here a column is an `array` of the standard library, so
a program that sends and receives does not need NumPy. Programs that use NumPy may pass its arrays
as columns, and read a column with `numpy.asarray(column)`, which copies nothing. An inconsistent
answer (sizes, a missing column) raises BulkError and is never read in part. The server has its own
codec; a test compares the two.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, Protocol, TypeAlias, TypedDict, Unpack

import msgpack

from delaylog.client.keywords import SettleTimes
from delaylog.client.wire.checks import check_list, check_sendable
from delaylog.client.wire.times import due_members, in_ms
from delaylog.contract.message_fields import ARRAY_CODES, BY_NAME, COLUMNS, MergeMode, pack_fields

# -------------------------------------------------------------------------- columns of integers


class IntArray(Protocol):
    """An array of integers: an `array.array`, an array of NumPy, or a column of an answer."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def tobytes(self) -> bytes:
        """The values as bytes, in their layout in memory."""
        ...

    def tolist(self) -> Any:
        """The values as a list of int."""
        ...


Numbers: TypeAlias = int | Sequence[int] | IntArray
"""One value for all rows, or one for each row."""

_SIZES: Final = {kind: array(code).itemsize for kind, code in ARRAY_CODES.items()}


def column_of(name: str, values: Sequence[int] | IntArray, kind: str, n: int | None) -> array[int]:
    """The values as a column of the type `kind`, for example `<i8`.

    ValueError if there are not `n` values (None: any number), or if the type cannot hold one of
    them. TypeError for values that are not integers.
    """
    check_list(name, values)
    if hasattr(values, "__array__"):
        return _column_of_numpy(name, values.__array__(), kind, n)
    code = ARRAY_CODES[kind]
    if isinstance(values, array) and values.typecode == code:
        found = values
    else:
        try:
            found = array(code, values)
        except OverflowError:
            raise _outside(name, kind) from None
    if n is not None and len(found) != n:
        raise ValueError(f"{name} holds {len(found)} values for {n} rows")
    return found


def _column_of_numpy(name: str, values: Any, kind: str, n: int | None) -> array[int]:
    if values.ndim != 1:
        raise ValueError(f"{name} must have one dimension, not {values.ndim}")
    if n is not None and len(values) != n:
        raise ValueError(f"{name} holds {values.size} values for {n} rows")
    if values.dtype.kind not in "iub" and len(values):
        raise TypeError(f"{name} must be whole numbers, not {values.dtype}")
    # Most columns have the type already. Names of types are compared, since NumPy would parse them.
    if values.dtype.str[1:] != kind[1:] or not values.dtype.isnative:
        found = values.astype(kind)
        if (found != values).any():
            raise _outside(name, kind)
        values = found
    return array(ARRAY_CODES[kind], values.tobytes())


def all_of(value: int, kind: str, n: int) -> array[int]:
    """A column of n equal values. OverflowError if the type cannot hold it."""
    return array(ARRAY_CODES[kind], [value]) * n


def column_from(raw: bytes, kind: str) -> array[int]:
    """The column that these bytes contain."""
    return array(ARRAY_CODES[kind], raw)


def size_of(kind: str) -> int:
    """Bytes of one value."""
    return _SIZES[kind]


def bounds_of(kind: str) -> tuple[int, int]:
    """The least and the greatest value of the type."""
    bits = 8 * _SIZES[kind]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if "i" in kind else (0, (1 << bits) - 1)


def one_for_all(column: array[int]) -> int | None:
    """The value that all rows share, or None if they differ or there are none."""
    if not column:
        return None
    raw = column.tobytes()
    return column[0] if raw == raw[: column.itemsize] * len(column) else None


def _outside(name: str, kind: str) -> ValueError:
    least, most = bounds_of(kind)
    return ValueError(f"{name} holds a value outside {least} to {most}")


# ------------------------------------------------------------------------------------- requests

BULK_TYPE: Final = "application/vnd.delaylog.batch"
BULK_VERSION: Final = 1

# Results of a row of a bulk send, and of a bulk cancel or reschedule.
CREATED, KEPT, REPLACED, REJECTED = range(4)
DONE, TOO_LATE, UNKNOWN = range(3)

_NUMBERS: Final = {"deliver_at_ms": "<i8", "delay_ms": "<i8"} | {
    name: field.column for name, field in COLUMNS.items() if field.column and not field.is_text
}
"""The numeric columns of a bulk send, and their types."""
_TIMES: Final[Mapping[str, tuple[str, Callable[[Any], int]]]] = {
    "at": ("deliver_at_ms", lambda at: due_members(at=at)["deliver_at_ms"]),
    "delay": ("delay_ms", lambda delay: due_members(delay=delay)["delay_ms"]),
    "ttl": ("ttl_ms", lambda ttl: in_ms({"ttl": ttl}, "ttl")["ttl_ms"]),
}
"""Columns of times, and the numeric columns that they become."""
Texts: TypeAlias = Sequence[bytes] | Sequence[str] | tuple[Sequence[int] | IntArray, bytes]


def ref_to_id(ref: int) -> str:
    """The id that the broker generates for a message: `~` and the ref in 16 hex digits."""
    return f"~{ref & 0xFFFF_FFFF_FFFF_FFFF:016x}"


class SendColumns(TypedDict, total=False):
    """The columns of a bulk send besides its bodies, and the values for all rows.

    `at`, `delay` and `ttl` are other forms of `deliver_at_ms`, `delay_ms` and `ttl_ms`.
    """

    deliver_at_ms: Numbers | None
    delay_ms: Numbers | None
    at: datetime | Sequence[datetime] | None
    delay: timedelta | Sequence[timedelta] | None
    ids: Texts | None
    keys: Texts | None
    tags: Sequence[Sequence[str]] | None
    headers: Sequence[Mapping[str, str]] | None
    backoff: Sequence[Mapping[str, float] | None] | None
    priority: Numbers | None
    ttl_ms: Numbers | None
    ttl: timedelta | Sequence[timedelta] | None
    max_retry: Numbers | None
    merge: MergeMode | None
    producer: str | None
    sequence: int | None


_FIELDS_OF: Final = {"ids": "id", "keys": "key"}
assert BY_NAME.keys() <= {_FIELDS_OF.get(name, name) for name in SendColumns.__annotations__}


def encode_send(bodies: Texts, **columns: Unpack[SendColumns]) -> bytes:
    """Encode a bulk send. Text columns are lists, or (sizes, block) tuples if already columnar.

    TypeError for an unknown column.
    """
    given: Mapping[str, Any] = columns
    for name in given.keys() - SendColumns.__annotations__.keys():
        raise TypeError(f"a bulk body has no column {name!r}")
    for name, (field, as_ms) in _TIMES.items():
        if given.get(name) is not None:
            given = _with_numbers(given, name, field, as_ms)
    if (given.get("deliver_at_ms") is None) == (given.get("delay_ms") is None):
        raise ValueError("give either deliver_at_ms or delay_ms, or at or delay")
    producer, sequence = columns.get("producer"), columns.get("sequence")
    if (producer is None) != (sequence is None):
        raise ValueError("producer and sequence come together")
    tags, headers, backoff = columns.get("tags"), columns.get("headers"), columns.get("backoff")
    check_list("bodies", bodies)
    for name in ("ids", "keys", "tags"):
        check_list(name, given.get(name))
    n = rows_of("bodies", bodies)
    fields: dict[str, Any] = {"n": n}
    for name, kind in _NUMBERS.items():
        _put_numbers(fields, name, given.get(name), kind, n)
    _put_texts(fields, "body", "bodies", bodies, "<u4", n)
    _put_texts(fields, "id", "id", columns.get("ids"), "<u2", n)
    _put_texts(fields, "key", "key", columns.get("keys"), "<u2", n)
    if tags is not None:
        for each in tags:
            check_list("the tags of a row", each)
        _put_texts(fields, "tags", "tags", ["\n".join(each) for each in tags], "<u2", n)
    if headers is not None or backoff is not None:
        for name, column in (("headers", headers), ("backoff", backoff)):
            if column is not None and len(column) != n:
                raise ValueError(f"{name} holds {len(column)} values for {n} rows")
        nothing: list[None] = [None] * n
        rows = zip(headers or nothing, backoff or nothing, strict=True)
        packed = [pack_fields({"headers": each, "backoff": own}) for each, own in rows]
        texts = [each.get("headers", b"") for each in packed]
        _put_texts(fields, "headers", "headers", texts, "<u2", n)
    return pack_body(fields, merge=columns.get("merge"), producer=producer, sequence=sequence)


def or_now(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a bulk send; if they have no due time, the messages are due now."""
    dues = ("deliver_at_ms", "delay_ms", "at", "delay")
    if any(columns.get(name) is not None for name in dues):
        return dict(columns)
    return {**columns, "delay_ms": 0}


def _with_numbers(
    columns: Mapping[str, Any], name: str, field: str, in_ms: Callable[[Any], int]
) -> dict[str, Any]:
    """The columns, in which the times of one are numbers of milliseconds."""
    found = dict(columns)
    times = found.pop(name)
    if found.get(field) is not None:
        raise ValueError(f"give {name} or {field}, not both")
    is_one = isinstance(times, datetime | timedelta)
    found[field] = in_ms(times) if is_one else [in_ms(each) for each in times]
    return found


class SettleMembers(SettleTimes, total=False):
    """The keywords of settling besides the lease and its refs."""

    except_refs: Numbers | None


def encode_settle(
    lease: int,
    refs: Numbers | None = None,
    *,
    except_refs: Numbers | None = None,
    delay_ms: int | None = None,
    lease_ms: int | None = None,
    reason: str | None = None,
) -> bytes:
    """Encode a settling or begin of the given refs, or of a whole lease except some refs.

    `n` is the number of refs in the body: 0 for a whole lease.
    """
    if refs is not None and except_refs is not None:
        raise ValueError("give refs, or except_refs, not both")
    named = refs if refs is not None else except_refs
    chosen = _column_of_refs(named)
    fields: dict[str, Any] = {"n": len(chosen), "lease": lease}
    if refs is not None:
        fields["refs"] = chosen.tobytes()
    else:
        fields["all"] = True
        if len(chosen):
            fields["except"] = chosen.tobytes()
    return pack_body(fields, delay_ms=delay_ms, lease_ms=lease_ms, reason=reason)


class ChangeColumns(TypedDict, total=False):
    """The keywords of a bulk change: refs or ids, and the new times."""

    refs: Numbers | None
    ids: Texts | None
    deliver_at_ms: Numbers | None
    delay_ms: Numbers | None


def encode_change(
    *,
    refs: Numbers | None = None,
    ids: Texts | None = None,
    deliver_at_ms: Numbers | None = None,
    delay_ms: Numbers | None = None,
) -> bytes:
    """Encode a bulk cancel; with a time, a bulk reschedule or replay."""
    if (refs is None) == (ids is None):
        raise ValueError("give either refs or ids")
    if deliver_at_ms is not None and delay_ms is not None:
        raise ValueError("give deliver_at_ms or delay_ms, not both")
    fields: dict[str, Any] = {}
    if ids is not None:
        fields["n"] = rows_of("ids", ids)
        _put_texts(fields, "id", "id", ids, "<u2", fields["n"])
    else:
        column = _column_of_refs(refs)
        fields["n"] = len(column)
        fields["refs"] = column.tobytes()
    _put_numbers(fields, "deliver_at_ms", deliver_at_ms, "<i8", fields["n"])
    _put_numbers(fields, "delay_ms", delay_ms, "<i8", fields["n"])
    return pack_body(fields)


def encode_receive(**members: Any) -> bytes:
    """Encode a receive: the members of its JSON form that are not None."""
    return pack_body({"n": 0}, **members)


def pack_body(fields: Mapping[str, Any], **optional: object) -> bytes:
    """Pack a bulk body of these members; optional ones that are None are left out."""
    given = {name: value for name, value in optional.items() if value is not None}
    packed: bytes = msgpack.packb({"v": BULK_VERSION, **fields, **given})
    return packed


def rows_of(what: str, texts: Texts) -> int:
    """The number of rows of a text column. TypeError if it is none, such as a tuple of str."""
    if isinstance(texts, tuple):
        if len(texts) != 2 or not isinstance(texts[1], (bytes, bytearray, memoryview)):
            raise TypeError(f"{what} are a list, or a tuple of their sizes and one block of bytes")
        return len(texts[0])
    if not isinstance(texts, Sized):
        raise TypeError(f"{what} are a list, not {type(texts).__name__}")
    return len(texts)


def _column_of_refs(refs: Numbers | None) -> array[int]:
    if refs is None:
        return array("q")
    return column_of("refs", [refs] if isinstance(refs, int) else refs, "<i8", None)


def _put_numbers(
    fields: dict[str, Any], name: str, value: Numbers | None, kind: str, n: int
) -> None:
    if value is None:
        return
    if isinstance(value, int):
        check_sendable(**{name: value})
        fields[name] = value
        return
    fields[name] = column_of(name, value, kind, n).tobytes()


def _put_texts(
    fields: dict[str, Any], name: str, block_name: str, value: Texts | None, kind: str, n: int
) -> None:
    """Add a column of texts; equal sizes are sent once."""
    if value is None:
        return
    if isinstance(value, tuple):
        sizes, block = value
    else:
        raw = [text.encode() if isinstance(text, str) else text for text in value]
        sizes, block = list(map(len, raw)), b"".join(raw)
    size_name = f"{name}_size"
    column = column_of(size_name, sizes, kind, n)
    if sum(column) != len(block):
        raise ValueError(f"the sizes of {name} do not add up to its {len(block)} bytes")
    size = one_for_all(column)
    fields[size_name] = column.tobytes() if size is None else size
    fields[block_name] = block


# -------------------------------------------------------------------------------------- answers

ROWS_MAX: Final = 1 << 22
"""A request has fewer. A column with one value for all rows takes memory for each of them."""
_RESULTS: Final = b"\x00\x01\x02\x03"


class BulkError(ValueError):
    """A bulk answer is inconsistent. Treat the call as one whose answer was lost."""

    def __init__(self, detail: str, column: str) -> None:
        super().__init__(f"{column}: {detail}")
        self.column = column


@dataclass(frozen=True, slots=True)
class SendAnswer:
    """The result of each sent row: ref, due time, CREATED / KEPT / REPLACED / REJECTED."""

    n: int
    refs: array[int]
    deliver_at_ms: array[int]
    result: array[int]
    shard: str = ""
    """The shard that accepted the rows. It is not part of the body."""


@dataclass(frozen=True)
class ReceivedBatch:
    """Messages under one lease, as columns. Per-row values are created when they are first read.

    A text column that was not requested is empty in every row; `priority` is then 0.
    """

    n: int
    lease: int
    lease_until_ms: int
    now_ms: int | None
    refs: array[int]
    deliver_at_ms: array[int]
    attempts: array[int]
    body_sizes: array[int]
    body_block: bytes
    id_sizes: array[int]
    id_block: bytes
    key_sizes: array[int]
    key_block: bytes
    tags_sizes: array[int]
    tags_block: bytes
    headers_sizes: array[int]
    headers_block: bytes
    priority: array[int]

    @cached_property
    def ids(self) -> list[str]:
        """The ids: the sender's, or those that the broker generated."""
        if not self.id_block:
            return list(map(ref_to_id, self.refs.tolist()))
        own = split_block(self.id_sizes, self.id_block)
        named = zip(own, self.refs.tolist(), strict=True)
        return [raw.decode() if raw else ref_to_id(ref) for raw, ref in named]

    def bodies(self) -> list[bytes]:
        """The body of each row."""
        return split_block(self.body_sizes, self.body_block)


@dataclass(frozen=True, slots=True)
class SettleAnswer:
    """The number of settled rows, and the refs whose lease had ended or was unknown."""

    n: int
    done: int
    gone: array[int]
    unknown: array[int]


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """The result of each row of a bulk cancel or reschedule: DONE, TOO_LATE or UNKNOWN."""

    n: int
    result: array[int]


def decode_send_answer(wire: bytes) -> SendAnswer:
    """Decode the answer to a bulk send."""
    fields, n = _unpack(wire)
    return SendAnswer(
        n,
        _read_numbers(fields, "refs", "<i8", n),
        _read_numbers(fields, "deliver_at_ms", "<i8", n),
        _read_results(fields, n),
    )


def decode_received(wire: bytes) -> ReceivedBatch:
    """Decode the answer to a bulk receive; n = 0 if nothing became ready in time."""
    return received(*_unpack(wire))


def decode_acked_and_received(wire: bytes) -> tuple[list[str], ReceivedBatch]:
    """Decode the answer to `ack_and_receive`: a result per receipt, and the batch."""
    fields, n = _unpack(wire)
    results = fields.get("results")
    if not isinstance(results, list):
        raise BulkError("the results of the receipts are missing", "results")
    return results, received(fields, n)


def received(fields: dict[str, Any], n: int) -> ReceivedBatch:
    """Build a batch from the members of a receive answer. Columns may already be arrays."""
    now_ms = fields.get("now_ms")
    if n and not isinstance(fields.get("lease"), int):
        raise BulkError("the lease of the rows is missing", "lease")
    lease_until_ms = fields.get("lease_until_ms") or 0
    if not isinstance(lease_until_ms, int):
        raise BulkError("not a time", "lease_until_ms")
    none = all_of(0, "<i8", n)
    body_sizes, body_block = _read_texts(fields, "body", "bodies", "<u4", none)
    id_sizes, id_block = _read_utf8(fields, "id", none)
    key_sizes, key_block = _read_utf8(fields, "key", none)
    tags_sizes, tags_block = _read_utf8(fields, "tags", none)
    headers_sizes, headers_block = _read_texts(fields, "headers", "headers", "<u2", none)
    return ReceivedBatch(
        n=n,
        lease=fields.get("lease") or 0,
        lease_until_ms=lease_until_ms,
        now_ms=now_ms if isinstance(now_ms, int) else None,
        refs=_read_numbers(fields, "refs", "<i8", n),
        deliver_at_ms=_read_numbers(fields, "deliver_at_ms", "<i8", n),
        attempts=_read_numbers(fields, "attempts", "<u2", n),
        body_sizes=body_sizes,
        body_block=body_block,
        id_sizes=id_sizes,
        id_block=id_block,
        key_sizes=key_sizes,
        key_block=key_block,
        tags_sizes=tags_sizes,
        tags_block=tags_block,
        headers_sizes=headers_sizes,
        headers_block=headers_block,
        priority=_read_numbers(fields, "priority", "<i4", n)
        if "priority" in fields
        else all_of(0, "<i4", n),
    )


def decode_settled(wire: bytes) -> SettleAnswer:
    """Decode the answer to a bulk ack, nack or extend."""
    fields, n = _unpack(wire)
    done = fields.get("done")
    if not isinstance(done, int):
        raise BulkError("not a count", "done")
    return SettleAnswer(n, done, _read_refs(fields, "gone"), _read_refs(fields, "unknown"))


def decode_changed(wire: bytes) -> ChangeAnswer:
    """Decode the answer to a bulk cancel or reschedule."""
    fields, n = _unpack(wire)
    return ChangeAnswer(n, _read_results(fields, n))


def split_block(sizes: array[int], block: bytes) -> list[bytes]:
    """Cut a text column's block into its values."""
    values = []
    start = 0
    for size in sizes.tolist():
        values.append(block[start : start + size])
        start += size
    return values


def _unpack(wire: bytes) -> tuple[dict[str, Any], int]:
    fields = unpack_map(wire)
    return fields, rows_in(fields)


def unpack_map(wire: bytes) -> dict[str, Any]:
    """The members of one msgpack map."""
    try:
        fields = msgpack.unpackb(wire, raw=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BulkError(f"not one msgpack map ({error})", "body") from None
    if not isinstance(fields, dict):
        raise BulkError("not a msgpack map", "body")
    return fields


def rows_in(fields: dict[str, Any]) -> int:
    """The number of rows that an answer states."""
    n = fields.get("n")
    if not isinstance(n, int) or not 0 <= n <= ROWS_MAX:
        raise BulkError("not a count of rows", "n")
    return n


def _read_numbers(fields: dict[str, Any], name: str, kind: str, n: int) -> array[int]:
    value = fields.get(name)
    if isinstance(value, bytes):
        if len(value) == n * size_of(kind):
            return column_from(value, kind)
    elif isinstance(value, int):
        try:
            return all_of(value, kind, n)
        except OverflowError:
            raise BulkError(f"{value} is no value of its type", name) from None
    elif value is not None and hasattr(value, "__array__"):
        # The embedded broker's own columns.
        return column_of(name, value, kind, n)
    elif value is None and n == 0:
        return column_from(b"", kind)
    raise BulkError(f"not {n} values of {size_of(kind)} bytes", name)


def _read_results(fields: dict[str, Any], n: int) -> array[int]:
    results = _read_numbers(fields, "result", "<u1", n)
    if results.tobytes().translate(None, _RESULTS):
        raise BulkError("not a known result", "result")
    return results


def _read_refs(fields: dict[str, Any], name: str) -> array[int]:
    value = fields.get(name, b"")
    if not isinstance(value, bytes) or len(value) % 8:
        raise BulkError("not a list of refs", name)
    return column_from(value, "<i8")


def _read_texts(
    fields: dict[str, Any], name: str, block_name: str, kind: str, none: array[int]
) -> tuple[array[int], bytes]:
    """The sizes and the block of a text column; `none` has the sizes of an absent column."""
    size_name = f"{name}_size"
    block = fields.get(block_name, b"")
    if not isinstance(block, bytes):
        raise BulkError("not bytes", block_name)
    if size_name not in fields and not block:
        return none, b""
    sizes = _read_numbers(fields, size_name, kind, len(none))
    total = sum(sizes)
    if total != len(block):
        raise BulkError(f"adds up to {total}, {block_name} holds {len(block)}", size_name)
    return sizes, block


def _read_utf8(fields: dict[str, Any], name: str, none: array[int]) -> tuple[array[int], bytes]:
    """A text column whose values are valid UTF-8 each. The block is checked as a whole."""
    sizes, block = _read_texts(fields, name, name, "<u2", none)
    if block and not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError as error:
            raise BulkError(f"not UTF-8 ({error.reason})", name) from None
        # The block is UTF-8 and no value starts inside a character, so each value is UTF-8.
        starts = [end - size for size, end in zip(sizes, accumulate(sizes), strict=True) if size]
        if any(block[start] & 0xC0 == 0x80 for start in starts):
            raise BulkError("a value is cut inside of a character", name)
    return sizes, block
