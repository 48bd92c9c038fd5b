"""Decodes the bulk answers of the HTTP API.

An inconsistent answer (sizes, a missing column) raises BulkError and is never read in part.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import msgpack

from delaylog.client.wire.bulk import ref_to_id
from delaylog.client.wire.columns import all_of, column_from, column_of, size_of

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
        _numbers(fields, "refs", "<i8", n),
        _numbers(fields, "deliver_at_ms", "<i8", n),
        _results(fields, n),
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
    body_sizes, body_block = _texts(fields, "body", "bodies", "<u4", none)
    id_sizes, id_block = _utf8(fields, "id", none)
    key_sizes, key_block = _utf8(fields, "key", none)
    tags_sizes, tags_block = _utf8(fields, "tags", none)
    headers_sizes, headers_block = _texts(fields, "headers", "headers", "<u2", none)
    return ReceivedBatch(
        n=n,
        lease=fields.get("lease") or 0,
        lease_until_ms=lease_until_ms,
        now_ms=now_ms if isinstance(now_ms, int) else None,
        refs=_numbers(fields, "refs", "<i8", n),
        deliver_at_ms=_numbers(fields, "deliver_at_ms", "<i8", n),
        attempts=_numbers(fields, "attempts", "<u2", n),
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
        priority=_numbers(fields, "priority", "<i4", n)
        if "priority" in fields
        else all_of(0, "<i4", n),
    )


def decode_settled(wire: bytes) -> SettleAnswer:
    """Decode the answer to a bulk ack, nack or extend."""
    fields, n = _unpack(wire)
    done = fields.get("done")
    if not isinstance(done, int):
        raise BulkError("not a count", "done")
    return SettleAnswer(n, done, _refs(fields, "gone"), _refs(fields, "unknown"))


def decode_changed(wire: bytes) -> ChangeAnswer:
    """Decode the answer to a bulk cancel or reschedule."""
    fields, n = _unpack(wire)
    return ChangeAnswer(n, _results(fields, n))


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


def _numbers(fields: dict[str, Any], name: str, kind: str, n: int) -> array[int]:
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


def _results(fields: dict[str, Any], n: int) -> array[int]:
    results = _numbers(fields, "result", "<u1", n)
    if results.tobytes().translate(None, _RESULTS):
        raise BulkError("not a known result", "result")
    return results


def _refs(fields: dict[str, Any], name: str) -> array[int]:
    value = fields.get(name, b"")
    if not isinstance(value, bytes) or len(value) % 8:
        raise BulkError("not a list of refs", name)
    return column_from(value, "<i8")


def _texts(
    fields: dict[str, Any], name: str, block_name: str, kind: str, none: array[int]
) -> tuple[array[int], bytes]:
    """The sizes and the block of a text column; `none` has the sizes of an absent column."""
    size_name = f"{name}_size"
    block = fields.get(block_name, b"")
    if not isinstance(block, bytes):
        raise BulkError("not bytes", block_name)
    if size_name not in fields and not block:
        return none, b""
    sizes = _numbers(fields, size_name, kind, len(none))
    total = sum(sizes)
    if total != len(block):
        raise BulkError(f"adds up to {total}, {block_name} holds {len(block)}", size_name)
    return sizes, block


def _utf8(fields: dict[str, Any], name: str, none: array[int]) -> tuple[array[int], bytes]:
    """A text column whose values are valid UTF-8 each. The block is checked as a whole."""
    sizes, block = _texts(fields, name, name, "<u2", none)
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
