"""Decodes the bulk answers of the HTTP API.

An inconsistent answer (sizes, a missing column) raises BulkError and is never read in part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from delaylog.client.wire.bulk import _DTYPES, Int64Array, ref_to_id


class BulkError(ValueError):
    """A bulk answer is inconsistent. Treat the call as one whose answer was lost."""

    def __init__(self, detail: str, column: str) -> None:
        super().__init__(f"{column}: {detail}")
        self.column = column


@dataclass(frozen=True, slots=True)
class SendAnswer:
    """The result of each sent row: ref, due time, CREATED / KEPT / REPLACED / REJECTED."""

    n: int
    refs: Int64Array
    deliver_at_ms: Int64Array
    result: npt.NDArray[np.uint8]
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
    refs: Int64Array
    deliver_at_ms: Int64Array
    attempts: npt.NDArray[np.uint16]
    body_sizes: Int64Array
    body_block: bytes
    id_sizes: Int64Array
    id_block: bytes
    key_sizes: Int64Array
    key_block: bytes
    tags_sizes: Int64Array
    tags_block: bytes
    headers_sizes: Int64Array
    headers_block: bytes
    priority: npt.NDArray[np.int32]

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
    gone: Int64Array
    unknown: Int64Array


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """The result of each row of a bulk cancel or reschedule: DONE, TOO_LATE or UNKNOWN."""

    n: int
    result: npt.NDArray[np.uint8]


def decode_send_answer(wire: bytes) -> SendAnswer:
    """Decode the answer to a bulk send."""
    fields, n = _unpack(wire)
    return SendAnswer(
        n,
        _numbers(fields, "refs", "<i8", n),
        _numbers(fields, "deliver_at_ms", "<i8", n),
        _numbers(fields, "result", "<u1", n),
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
    none = np.zeros(n, np.int64)
    body_sizes, body_block = _texts(fields, "body", "bodies", "<u4", none)
    id_sizes, id_block = _utf8(fields, "id", none)
    key_sizes, key_block = _utf8(fields, "key", none)
    tags_sizes, tags_block = _utf8(fields, "tags", none)
    headers_sizes, headers_block = _texts(fields, "headers", "headers", "<u2", none)
    return ReceivedBatch(
        n=n,
        lease=fields.get("lease") or 0,
        lease_until_ms=fields.get("lease_until_ms") or 0,
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
        else np.zeros(n, "<i4"),
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
    return ChangeAnswer(n, _numbers(fields, "result", "<u1", n))


def split_block(sizes: Int64Array, block: bytes) -> list[bytes]:
    """Cut a text column's block into its values."""
    values = []
    start = 0
    for size in sizes.tolist():
        values.append(block[start : start + size])
        start += size
    return values


def _unpack(wire: bytes) -> tuple[dict[str, Any], int]:
    try:
        fields = msgpack.unpackb(wire, raw=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BulkError(f"not one msgpack map ({error})", "body") from None
    if not isinstance(fields, dict):
        raise BulkError("not a msgpack map", "body")
    n = fields.get("n")
    if not isinstance(n, int) or n < 0:
        raise BulkError("not a count of rows", "n")
    return fields, n


def _numbers(fields: dict[str, Any], name: str, dtype: str, n: int) -> npt.NDArray[Any]:
    value = fields.get(name)
    wanted = _DTYPES[dtype]
    if isinstance(value, int):
        return np.full(n, value, wanted)
    if isinstance(value, np.ndarray):
        # For few values a copy takes a third of the time of `ascontiguousarray`.
        there = value.dtype == wanted and value.flags.c_contiguous
        return value if there else value.astype(wanted)
    if value is None and n == 0:
        return np.empty(0, wanted)
    if not isinstance(value, bytes) or len(value) != n * wanted.itemsize:
        raise BulkError(f"not {n} values of {wanted.itemsize} bytes", name)
    return np.frombuffer(value, wanted)


def _refs(fields: dict[str, Any], name: str) -> Int64Array:
    value = fields.get(name, b"")
    if not isinstance(value, bytes) or len(value) % 8:
        raise BulkError("not a list of refs", name)
    return np.frombuffer(value, "<i8")


def _texts(
    fields: dict[str, Any], name: str, block_name: str, dtype: str, none: Int64Array
) -> tuple[Int64Array, bytes]:
    """The sizes and the block of a text column; `none` has the sizes of an absent column."""
    size_name = f"{name}_size"
    block = fields.get(block_name, b"")
    if not isinstance(block, bytes):
        raise BulkError("not bytes", block_name)
    if size_name not in fields and not block:
        return none, b""
    sizes = _numbers(fields, size_name, dtype, len(none)).astype(np.int64, copy=False)
    total = int(np.add.reduce(sizes))
    if total != len(block):
        raise BulkError(f"adds up to {total}, {block_name} holds {len(block)}", size_name)
    return sizes, block


def _utf8(fields: dict[str, Any], name: str, none: Int64Array) -> tuple[Int64Array, bytes]:
    """A text column whose values are valid UTF-8 each. The block is checked as a whole."""
    sizes, block = _texts(fields, name, name, "<u2", none)
    if block and not block.isascii():
        starts = (np.cumsum(sizes) - sizes)[sizes > 0]
        # The block is UTF-8 and no value starts inside a character, so each value is UTF-8.
        cut = (np.frombuffer(block, np.uint8)[starts] & 0xC0) == 0x80
        try:
            block.decode()
        except UnicodeDecodeError as error:
            raise BulkError(f"not UTF-8 ({error.reason})", name) from None
        if cut.any():
            raise BulkError("a value is cut inside of a character", name)
    return sizes, block
