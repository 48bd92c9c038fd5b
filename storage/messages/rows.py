"""Index rows: made from a batch and its decision (the vectorised core of apply), or from integers.

Pure functions: the same frame gives the same rows on every node and at every replay. The rows are
ordered by (hour, log order). The owner of the hours fills in `global_index`, chains and file
offsets later.

`FewRows` makes the rows of a few single messages of integers, byte for byte those that `place_rows`
makes of the same messages. NumPy's fixed cost for a column is up to a microsecond, and rows have
twenty of them. `RowValues` is one row as plain integers: up to some sixteen messages a loop is
cheaper, since one field of a structured scalar takes longer to read than all fields of a row by
`struct`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.contract.message_fields import COLUMNS
from delaylog.contract.own_backoff import ARRAY
from delaylog.storage.columns import copy_rows, some, take_rows
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    INDEX_ROW,
    NEVER_MS,
    TEXT_SIZES_WORD,
    Int64Array,
    RowArray,
)
from delaylog.storage.log.payloads import SendDecision
from delaylog.storage.messages.batch import Block, Column, MessageBatch, Single, TextColumn, expand
from delaylog.storage.runs.id_hash import IdHash

# ------------------------------------------------------------------------------ columns of rows

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


# ----------------------------------------------------------------------- rows of a few messages

FEW_ROWS_MAX: Final = 32
"""Up to this number of rows, columns cost 1.3 to 2 times as much; at 50 both cost the same."""

_NO_NAMES: Final[Set[str]] = frozenset()
_BACKOFF: Final = bytes([ARRAY])
"""Headers that begin with this byte begin with a backoff."""


class FewRows:
    """Rows of one frame, all of which become messages, ordered by (hour, order of sending).

    As in `PlacedRows`, `hours` are the distinct hours, `starts` the first row of each, and the end
    of the last; `order[k]` is the message of row k, None = the same order.
    """

    __slots__ = (
        "_singles",
        "data",
        "decision",
        "due_ms",
        "hours",
        "id_hashes",
        "key_hashes",
        "names",
        "now_ms",
        "order",
        "own_backoffs",
        "position",
        "prioritised",
        "raw",
        "refs",
        "starts",
        "tags",
    )

    def __init__(
        self,
        singles: Sequence[Single],
        due_ms: list[int],
        id_hashes: Sequence[int],
        decision: SendDecision,
        now_ms: int,
        position: int,
    ) -> None:
        """`due_ms` = their due times, none before `now_ms` or the hour floor; `id_hashes` = 0 for a
        message without an id; empty if none has one.
        """
        self._singles = singles
        self.decision = decision
        self.now_ms = now_ms
        self.position = position
        self.due_ms = due_ms
        self.id_hashes = id_hashes
        self.order: list[int] | None = None
        n, first = len(singles), due_ms[0] // HOUR_MS
        if n == 1 or min(due_ms) // HOUR_MS == first == max(due_ms) // HOUR_MS:
            self.hours, self.starts = [first], [0, n]
        else:
            self._sort()
        # `number` sets the rest.
        self.refs: list[int]
        """The ref of each message, in the order of sending."""
        self.raw: bytearray
        """The bytes of the rows."""
        self.data: bytes
        """Their records, in the order of sending."""
        self.names: Set[str] = _NO_NAMES
        """Fields that some message has."""
        self.key_hashes: Sequence[int] = ()
        """Of each message, 0 = no key; empty if no message has fields. So are `tags`."""
        self.tags: Sequence[bytes] = ()
        self.prioritised = self.own_backoffs = False
        """Whether a message has a priority other than 0; whether one has a backoff of its own."""

    def _sort(self) -> None:
        hours = [due // HOUR_MS for due in self.due_ms]
        order = sorted(range(len(hours)), key=hours.__getitem__)
        if order != list(range(len(hours))):
            self.order = order
        self.hours = sorted(set(hours))
        self.starts = [0]
        for hour in self.hours:
            self.starts.append(self.starts[-1] + hours.count(hour))

    def number(self, firsts: Sequence[int]) -> None:
        """Number and make the rows; those of `hours[k]` are numbered from `firsts[k]` on."""
        n, tag = len(self._singles), self.decision.tag << INDEX_BITS
        self.raw = bytearray(n * INDEX_ENTRY_SIZE)
        if len(firsts) == 1:
            ref = self.hours[0] << HOUR_SHIFT | tag | firsts[0]
            self.refs = list(range(ref, ref + n))
            places: Sequence[int] = range(n)
        else:
            order = range(n) if self.order is None else self.order
            places, self.refs = [0] * n, [0] * n
            for k, hour in enumerate(self.hours):
                start, ref = self.starts[k], hour << HOUR_SHIFT | tag | firsts[k]
                for row in range(start, self.starts[k + 1]):
                    places[order[row]], self.refs[order[row]] = row, ref + row - start
        for single in self._singles:
            if single.fields:
                self._pack(places)
                return
        self._pack_plain(places)

    def _pack_plain(self, places: Sequence[int]) -> None:
        """`_pack` for messages that have only a body and a time, at half the cost."""
        decision, now_ms, position = self.decision, self.now_ms, self.position
        topic, tag = decision.topic, decision.tag
        ttl_ms, max_retry = decision.ttl_ms, decision.max_retry
        raw, offset, bodies = self.raw, 0, []
        for single, row, due, ref in zip(
            self._singles, places, self.due_ms, self.refs, strict=True
        ):
            size = len(single.body)
            bodies.append(single.body)
            expires = NEVER_MS if ttl_ms < 0 else due + ttl_ms
            # offset, size, local, global, pre_global; times; position; hashes; topic, group, ...
            INDEX_ROW.pack_into(
                raw, row * INDEX_ENTRY_SIZE,
                offset, size, 0, ref & INDEX_MASK, 0,
                due, expires, now_ms, position,
                0, 0, 0,
                topic, 0, 0, tag, max_retry,
                0, 0, 0, 0,
                ref,
            )  # fmt: skip
            offset += size
        self.data = b"".join(bodies)

    def _pack(self, places: Sequence[int]) -> None:
        """Make the rows and records; `places` = the row of each message."""
        decision, now_ms, position = self.decision, self.now_ms, self.position
        topic, tag, default_ttl_ms = decision.topic, decision.tag, decision.ttl_ms
        id_hashes = self.id_hashes or [0] * len(places)
        raw, offset, records = self.raw, 0, []
        names: set[str] = set()
        key_hashes: list[int] = []
        all_tags: list[bytes] = []
        for at, single in enumerate(self._singles):
            fields: Any = single.fields or {}
            names.update(fields)
            take = fields.get
            id_, key, tags = take("id", b""), take("key", b""), take("tags", b"")
            headers, priority = take("headers", b""), take("priority", 0)
            ttl_ms, due, ref = take("ttl_ms", default_ttl_ms), self.due_ms[at], self.refs[at]
            record = b"".join((id_, key, tags, headers, single.body))
            key_hash = hash_u64(key) if key else 0
            INDEX_ROW.pack_into(
                raw, places[at] * INDEX_ENTRY_SIZE,
                offset, len(record), 0, ref & INDEX_MASK, 0,
                due, NEVER_MS if ttl_ms < 0 else due + ttl_ms, now_ms, position,
                tags_mask(tags) if tags else 0, key_hash, id_hashes[at],
                topic, 0, priority, tag, take("max_retry", decision.max_retry),
                len(id_), len(key), len(tags), len(headers),
                ref,
            )  # fmt: skip
            offset += len(record)
            records.append(record)
            key_hashes.append(key_hash)
            all_tags.append(tags)
            self.prioritised = self.prioritised or priority != 0
            self.own_backoffs = self.own_backoffs or headers[:1] == _BACKOFF
        self.data = b"".join(records)
        self.names, self.key_hashes, self.tags = names, key_hashes, all_tags

    def hour_counts(self) -> dict[int, int]:
        """Number of rows in each hour."""
        lengths = (stop - start for start, stop in itertools.pairwise(self.starts))
        return dict(zip(self.hours, lengths, strict=True))

    def named(self) -> tuple[list[int], list[int]]:
        """(hash of the id, ref) of the messages that have an id."""
        pairs = [pair for pair in zip(self.id_hashes, self.refs, strict=True) if pair[0]]
        return [hashed for hashed, _ in pairs], [ref for _, ref in pairs]

    def placed(self) -> PlacedRows:
        """The rows as columns."""
        order = None if self.order is None else np.array(self.order, np.int64)
        rows = np.frombuffer(self.raw, INDEX_ENTRY)
        tag = self.decision.tag
        return PlacedRows(rows, self.data, self.hours, self.starts, order, self.position, tag)


# -------------------------------------------------------------------------- one row as integers


class RowValues(NamedTuple):
    """The fields of an INDEX_ENTRY, as `INDEX_ROW` unpacks them."""

    offset: int
    size: int
    local_index: int
    global_index: int
    pre_global_index: int
    deliver_at: int
    expires_at: int
    sent_at: int
    sent_position: int
    tag_mask: int
    key_hash: int
    id_hash: int
    topic: int
    group: int
    priority: int
    epoch_tag: int
    max_retry: int
    id_size: int
    key_size: int
    tags_size: int
    headers_size: int
    origin: int


assert INDEX_ENTRY.names == RowValues._fields
