"""Makes index rows from a batch and its decision: the vectorised core of apply.

Pure functions: the same frame gives the same rows on every node and at every replay. The rows are
ordered by (hour, log order). The owner of the hours fills in `global_index`, chains and file
offsets later.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.contract.message_fields import COLUMNS
from delaylog.storage.columns.questions import some
from delaylog.storage.columns.whole_rows import copy_rows, take_rows
from delaylog.storage.ids.id_hash import IdHash
from delaylog.storage.layout import (
    HOUR_MS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    NEVER_MS,
    TEXT_SIZES_WORD,
    Int64Array,
    RowArray,
)
from delaylog.storage.log.payloads import SendDecision
from delaylog.storage.messages.batch import Block, Column, MessageBatch, TextColumn, expand

_TAG_BITS_PER_GROUP: Final = 6
_TAG_GROUPS: Final = 4


def hash_u64(value: bytes) -> int:
    """blake2b, 8-byte digest, little-endian; 0 means "absent", so a hash of 0 becomes 1."""
    return int.from_bytes(blake2b(value, digest_size=8).digest(), "little") or 1


def tag_bits(tag: bytes) -> int:
    """The bits of a tag, one to four: one for each of the four lowest 6-bit groups of its hash."""
    digest = hash_u64(tag)
    bits = 0
    for group in range(_TAG_GROUPS):
        bits |= 1 << ((digest >> (group * _TAG_BITS_PER_GROUP)) & 63)
    return bits


@lru_cache(maxsize=8_192)
def tags_mask(joined: bytes) -> int:
    """Mask of all tags of a message (joined by newlines)."""
    mask = 0
    for tag in joined.split(b"\n"):
        if tag:
            mask |= tag_bits(tag)
    return mask


def hash_column(column: TextColumn, n: int) -> npt.NDArray[np.uint64] | None:
    """Hashes of a text column as u64, 0 where empty; None when the whole column is empty."""
    if column.empty:
        return None
    digests = [blake2b(value, digest_size=8).digest() for value in column.values(n)]
    hashes = np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
    hashes[hashes == 0] = 1
    hashes[column.sizes(n) == 0] = 0
    return hashes


def id_hashes(batch: MessageBatch, id_hash: IdHash) -> npt.NDArray[np.uint64]:
    """Hashes of the ids of a batch that has some; computed once and cached."""
    if batch.id_hashes is None:
        batch.id_hashes = id_hash.column(batch.id, batch.n)
    return batch.id_hashes


def heads_of(rows: RowArray, *names: str) -> RowArray:
    """Rows whose `size` covers only the first texts (`id_size`, …), so that no body is read."""
    heads = copy_rows(rows)
    heads["size"] = sum(rows[name].astype(np.int64) for name in names)
    return heads


@dataclass(slots=True, eq=False)
class PlacedRows:
    """Rows of one frame ordered by (hour, log order).

    `order[k]` is the batch row of `rows[k]` (None = same order). `offset` of a row points into
    `data`. `hours` are the distinct hours, `starts` the first row of each, and the end of the last.
    `tag` = the epoch tag of all rows, or None if they differ or some row was moved here.
    `due_span_ms` = the least and the greatest due time of the rows, if known.
    """

    rows: RowArray
    data: Block
    hours: list[int]
    starts: list[int]
    order: Int64Array | None
    position: int
    tag: int | None = None
    due_span_ms: tuple[int, int] | None = None

    def part(self, first: int, last: int) -> PlacedRows:
        """The rows of the hours numbered [first, last), with the same data."""
        a, b = self.starts[first], self.starts[last]
        order = np.arange(a, b) if self.order is None else self.order[a:b]
        starts = [start - a for start in self.starts[first : last + 1]]
        hours = self.hours[first:last]
        return PlacedRows(self.rows[a:b], self.data, hours, starts, order, self.position)


def due_column(batch: MessageBatch, leader_time_ms: int) -> Column:
    """Due times: those that the batch asks for, but not before the leader's time."""
    if batch.delay_ms is not None:
        delay = batch.delay_ms
        if isinstance(delay, int):
            return leader_time_ms + max(delay, 0)
        return leader_time_ms + np.maximum(delay, 0)
    due = batch.deliver_at_ms
    assert due is not None, "decode_send leaves exactly one of the two time columns"
    if isinstance(due, int):
        return max(due, leader_time_ms)
    return np.maximum(due, leader_time_ms)


def ttl_to_expires(due: npt.NDArray[np.int64], ttl: Column) -> Int64Array | int:
    """When each row expires: due + ttl, or never for a negative ttl."""
    if isinstance(ttl, int):
        return NEVER_MS if ttl < 0 else due + ttl
    out: Int64Array = np.where(ttl < 0, NEVER_MS, due + np.minimum(ttl, NEVER_MS // 2))
    return out


def interleave(batch: MessageBatch) -> tuple[Block, Column, Int64Array | None]:
    """Records (id, key, tags, headers, body) one after another: (data, size, offsets or None).

    If the batch has only bodies, its block of bodies is returned without a copy. Otherwise one
    vectorised copy scatters the values of each column to their places.
    """
    n = batch.n
    columns = [c for c in (batch.id, batch.key, batch.tags, batch.headers) if not c.empty]
    if not columns:
        size = batch.body.size
        return batch.body.block, size, None
    columns.append(batch.body)
    if all(isinstance(c.size, int) for c in columns):
        alike = [(c.block, c.size) for c in columns if isinstance(c.size, int)]
        return (*_side_by_side(alike, n), None)
    sizes = [c.sizes(n) for c in columns]
    total = np.sum(sizes, axis=0)
    starts = np.cumsum(total) - total
    data = np.empty(int(total.sum()), np.uint8)
    at = starts.copy()
    for column, size in zip(columns, sizes, strict=True):
        block = np.frombuffer(column.block, np.uint8)
        source = np.cumsum(size) - size
        data[np.repeat(at - source, size) + np.arange(len(block))] = block
        at += size
    return data.tobytes(), total, starts


def _side_by_side(columns: list[tuple[Block, int]], n: int) -> tuple[Block, int]:
    """`interleave` for columns with values of one size each: a table, filled by column."""
    width = sum(size for _, size in columns)
    if n == 1:
        return b"".join(block for block, _ in columns), width
    table = np.empty((n, width), np.uint8)
    at = 0
    for block, size in columns:
        table[:, at : at + size] = np.frombuffer(block, np.uint8).reshape(n, size)
        at += size
    return table.tobytes(), width


def place_rows(
    batch: MessageBatch,
    decision: SendDecision,
    leader_time_ms: int,
    position: int,
    id_hash: IdHash,
    sent_position: int | None = None,
) -> PlacedRows:
    """Index rows of an accepted batch, ordered by hour: all that the frame changes in the hours.

    `sent_position` = where in the log the rows count as sent, if not at the frame's `position`.
    """
    n = batch.n
    due = due_column(batch, leader_time_ms)
    rows = np.zeros(n, INDEX_ENTRY)
    data, size, offsets = interleave(batch)
    rows["size"] = size
    if offsets is not None:
        rows["offset"] = offsets
    elif isinstance(size, int):
        rows["offset"] = np.arange(0, n * size, size) if size else 0
    else:
        ends = np.cumsum(size, dtype=np.int64)
        rows["offset"] = ends - size
    rows["deliver_at"] = due
    due_rows = rows["deliver_at"]
    ttl = decision.ttl_ms if batch.ttl_ms is None else batch.ttl_ms
    rows["expires_at"] = ttl_to_expires(due_rows, _defaulted(ttl, "ttl_ms", decision.ttl_ms))
    rows["sent_at"] = leader_time_ms
    rows["sent_position"] = position if sent_position is None else sent_position
    rows["topic"] = decision.topic
    if batch.priority is not None:
        rows["priority"] = _defaulted(batch.priority, "priority", 0)
    retry = decision.max_retry if batch.max_retry is None else batch.max_retry
    rows["max_retry"] = _defaulted(retry, "max_retry", decision.max_retry)
    rows["epoch_tag"] = decision.tag
    _fill_text(rows, batch, id_hash)
    order: Int64Array | None = None
    if decision.accepted is not None:
        order = decision.accepted
        rows = take_rows(rows, order)
    placed = _by_hour(rows, data, decision.hour_floor, order, position, due)
    placed.tag = decision.tag
    return placed


def _defaulted(column: Column, name: str, default: int) -> Column:
    """The column, with the default in place of the field's mark for absent."""
    mark = COLUMNS[name].absent
    if isinstance(column, int):
        return default if column == mark else column
    hit = column == mark
    return np.where(hit, default, column) if some(hit) else column


def _fill_text(rows: RowArray, batch: MessageBatch, id_hash: IdHash) -> None:
    n = batch.n
    if not batch.id.empty:
        rows["id_size"] = batch.id.size
        rows["id_hash"] = id_hashes(batch, id_hash)
    if not batch.key.empty:
        rows["key_size"] = batch.key.size
        rows["key_hash"] = hash_column(batch.key, n)
    if not batch.tags.empty:
        rows["tags_size"] = batch.tags.size
        rows["tag_mask"] = np.fromiter(map(tags_mask, batch.tag_values), np.uint64, n)
    if not batch.headers.empty:
        rows["headers_size"] = batch.headers.size


def _by_hour(
    rows: RowArray,
    data: Block,
    hour_floor: int,
    order: Int64Array | None,
    position: int,
    due: Column,
) -> PlacedRows:
    n = len(rows)
    if n == 0:
        return PlacedRows(rows, data, [], [0], order, position)
    if isinstance(due, int):
        low = high = due
    else:
        low, high = int(due.min()), int(due.max())
    low_hour = max(low // HOUR_MS, hour_floor)
    if low_hour == max(high // HOUR_MS, hour_floor):
        # `low` and `high` include rows that were not accepted: the span is known only without such.
        span = (low, high) if order is None else None
        return PlacedRows(rows, data, [low_hour], [0, n], order, position, due_span_ms=span)
    hour = np.maximum(rows["deliver_at"] // HOUR_MS, hour_floor)
    if some(hour[1:] < hour[:-1]):
        by_hour = np.argsort(hour, kind="stable")
        hour = hour[by_hour]
        rows = take_rows(rows, by_hour)
        order = by_hour if order is None else order[by_hour]
    cuts = np.flatnonzero(np.diff(hour)) + 1
    starts = [0, *cuts.tolist(), n]
    return PlacedRows(rows, data, hour[starts[:-1]].tolist(), starts, order, position)


def bodies_only(rows: RowArray) -> bool:
    """Whether no row has an id, a key, tags or headers: then their records are their bodies."""
    words = rows.view(np.uint64).reshape(-1, INDEX_ENTRY_SIZE // 8)
    return not some(words[:, TEXT_SIZES_WORD])


def seconds_of(rows: RowArray, hour: Column) -> Int64Array:
    """Second of the hour of each row: max(due - hour start, 0) // 1000.

    A row due before its hour (it arrived below the hour floor) is in second 0.
    """
    start = expand(hour, len(rows)) * HOUR_MS
    out: Int64Array = np.maximum(rows["deliver_at"] - start, 0) // 1000
    return out
