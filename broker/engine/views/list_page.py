"""One page of a list: its request, which rows and states match it, and its cursor.

Columns are compared first: topic, due time, the hash of the key and the mask of the tag rule out
nearly all rows without reading a text. The stored keys and tags of the remaining rows are compared
afterwards.

A cursor says where a page ended, as an opaque text that clients send back:

    0 version u8 | 1 zero u8 | 2 second u16 | 4 hour u32 | 8 due i64 | 16 index u32 | 20 chain u32
    24 blake2b of (the 24 bytes, topic, filter), 8 bytes

base64url of these 32 bytes, without padding. It is a point in the due order, and the broker stores
nothing about it, so it survives restarts. The digest binds it to its topic and filter: a cursor of
another list, or one with a changed byte, is refused. The digest is no secret: a forged cursor with
the right digest is as valid as any other.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import msgpack
import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.model import FoundMessage, Topic, shown_kinds
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import (
    HOUR_MAX,
    HOUR_SECONDS,
    INDEX_MASK,
    NEVER_MS,
    STATE_ENDED_FIRST,
    Cause,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)
from delaylog.storage.messages.records import RawTexts
from delaylog.storage.messages.rows import hash_u64, tags_mask
from delaylog.storage.runs.id_hash import IdHash

# -------------------------------------------------------------------------------------- cursors

CURSOR: Final = struct.Struct("<BBHIqII")
CURSOR_SIZE: Final = 24
assert CURSOR.size == CURSOR_SIZE
CURSOR_VERSION: Final = 1
CURSOR_TEXT_SIZE: Final = 43
_DIGEST_SIZE: Final = 8
BEFORE_ALL: Final = -(2**63)
"""The due time of a cursor in front of every row of its hour."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Rows up to (hour, due, index) have been listed.

    With `chain`, the list is inside a second with very many rows, which is read newest first: of
    the rows behind (due, index), those from row number `chain` on have been listed as well.
    """

    hour: int
    due: int = BEFORE_ALL
    index: int = 0
    second: int = 0
    chain: int = 0

    def encode(self, scope: bytes) -> str:
        """The text of the cursor; `scope` identifies the list."""
        raw = CURSOR.pack(
            CURSOR_VERSION, 0, self.second, self.hour, self.due, self.index, self.chain
        )
        return base64.urlsafe_b64encode(raw + _digest(raw, scope)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, scope: bytes) -> Cursor:
        """The cursor of a text of this list. Raises BadRequestError for any other text."""
        try:
            if len(text) != CURSOR_TEXT_SIZE:
                raise ValueError
            wire = base64.b64decode(f"{text}=".encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _refused("is not a cursor") from None
        raw = wire[:CURSOR_SIZE]
        version, zero, second, hour, due, index, chain = CURSOR.unpack(raw)
        if wire[CURSOR_SIZE:] != _digest(raw, scope):
            raise _refused("belongs to another list, or was changed")
        if (
            version != CURSOR_VERSION
            or zero
            or hour > HOUR_MAX
            or second >= HOUR_SECONDS
            or max(index, chain) > INDEX_MASK
        ):
            raise _refused("names no row of a list")
        return cls(hour, due, index, second, chain)


def _digest(raw: bytes, scope: bytes) -> bytes:
    return blake2b(raw + scope, digest_size=_DIGEST_SIZE).digest()


def _refused(what: str) -> BadRequestError:
    return BadRequestError(f"cursor {what}; use one from an answer unchanged", field="cursor")


# ------------------------------------------------------------------- the request and its filter

Mask = npt.NDArray[np.bool_]
SHOWN: Final = tuple(
    state for state in MessageState if state not in (MessageState.NONE, MessageState.MOVED)
)
"""States that a client can request."""
_LIVING: Final = frozenset({MessageState.WAITING, MessageState.READY, MessageState.LEASED})
_STORED_STATES: Final = len(MessageState)


@dataclass(frozen=True, slots=True)
class ListQuery(MessageFilter):
    """A list: a filter, and how much of what matches a page may hold."""

    states: frozenset[MessageState] = frozenset(SHOWN)
    due_from_ms: int = 0
    due_to_ms: int = NEVER_MS
    limit: int = 100
    bodies: bool = False
    cursor: str | None = None
    """Where the page begins: the cursor of the page before it."""

    def scope(self, topic: Topic, group: Group) -> bytes:
        """What a cursor is bound to: topic, group and filter."""
        states = sorted(int(state) for state in self.states)
        due = [self.due_from_ms, self.due_to_ms]
        scope = [topic.number, group.number, states, due, self.tag, self.key]
        failed = [self.failure] if self.names_failure else []
        return bytes(msgpack.packb(scope + failed))


class RowFilter:
    """Matches rows and their states, for one page at one moment."""

    def __init__(
        self, query: ListQuery, topic: Topic, group: Group, now_ms: int, id_hash: IdHash
    ) -> None:
        self._topic = topic
        self.id_hash = id_hash
        self._now_ms = now_ms
        self.group = group
        self.query = query
        states = query.states
        self.living_only = states <= _LIVING
        fresh = bool(states & {MessageState.WAITING, MessageState.READY})
        kept = group.purged_ms + topic.settings.ended_keep_ms >= now_ms
        purged = bool(group.floor) and MessageState.CANCELLED in states and kept
        self.unhandled = fresh or purged
        """Whether rows without a stored state can match: a purge stores none either."""
        self.due_from, self.due_to = query.due_from_ms, query.due_to_ms
        if states <= {MessageState.WAITING}:
            self.due_from = max(self.due_from, now_ms + 1)
        if states <= {MessageState.READY}:
            self.due_to = min(self.due_to, now_ms + 1)
        self.selective = self.query.names_texts or not fresh
        """Whether few rows can be expected to match."""
        self._wanted = np.zeros(_STORED_STATES, np.bool_)
        self._wanted[[int(state) for state in states]] = True
        self._wanted_stored = self._wanted.copy()
        if MessageState.REPLACED in states:
            self._wanted_stored[int(MessageState.CANCELLED)] = True

    @property
    def tag_bits(self) -> int:
        """The tag's bits in zone maps; 0 without a tag."""
        return self.query.tag_bits

    @property
    def topic(self) -> int:
        """The topic's number."""
        return self._topic.number

    def rows(self, rows: RowArray) -> Mask:
        """Which rows can match, without regard to their states."""
        due = rows["deliver_at"]
        mask: Mask = (rows["topic"] == self._topic.number) & self.group.has(rows)
        mask &= (due >= self.due_from) & (due < self.due_to)
        if self.query.names_texts:
            mask &= self.query.may_match(rows)
        return mask

    def stored(self, entries: StateArray) -> Mask:
        """Which state entries can match, before their rows are read."""
        kept = entries["state"]
        mask: Mask = self._wanted_stored[kept] | (self.unhandled & (kept == 0))
        return mask

    def states(
        self,
        due: Int64Array,
        expires: Int64Array,
        sent_position: npt.NDArray[np.uint64],
        entries: StateArray,
    ) -> tuple[Mask, Int64Array]:
        """Which rows match by due time and state, and the state that each is shown with.

        Entries of rows that a purge ended, or that have expired, are changed to show that.
        """
        self.group.show_purged(sent_position, entries)
        self._topic.show_expired(expires, entries, self._now_ms)
        kept = shown_kinds(entries).astype(np.int64)
        fresh = np.where(due <= self._now_ms, int(MessageState.READY), int(MessageState.WAITING))
        shown: Int64Array = np.where(kept == 0, fresh, kept)
        mask: Mask = self._wanted[shown]
        ended = (kept >= STATE_ENDED_FIRST) & (kept != int(MessageState.MOVED))
        if not self.living_only and np.count_nonzero(ended):
            settings = self._topic.settings
            dead = kept == int(MessageState.DEAD)
            keep_ms = np.where(dead, settings.dead_keep_ms, settings.ended_keep_ms)
            over = entries["time"] + keep_ms < self._now_ms
            mask &= ~(ended & (over | (entries["cause"] == int(Cause.FORGOTTEN))))
        return mask, shown

    def exact(self, head: RawTexts) -> bool:
        """Whether the stored texts match."""
        return self.query.texts_match(head.key, head.tags)


def check_heads(heads: list[RawTexts], rows: RowArray, path: str, id_hash: IdHash) -> None:
    """Check texts against the hashes in their rows, which were verified. Raises CorruptionError."""
    columns = [rows[name].tolist() for name in ("id_hash", "key_hash", "tag_mask", "offset")]
    for head, hashed, key_hash, mask, offset in zip(heads, *columns, strict=True):
        good = (
            (not head.id or id_hash.one(head.id) == hashed)
            and (not head.key or hash_u64(head.key) == key_hash)
            and (not head.tags or tags_mask(head.tags) == mask)
        )
        if not good:
            raise CorruptionError("a record that is not its row's", path=path, position=offset)


# ---------------------------------------------------------------------- a page while it is made

PAGE_BYTES_MAX: Final = 8 << 20
"""Bodies on one page, after the first: bounds its memory, in all forms, to 50 MiB."""
PAGE_SECONDS: Final = 0.05
"""Time after which a page ends; a slice that has begun is finished, within 0.1 s in all."""
SCAN_ROWS_MAX: Final = 524_288
"""Candidates of an hour that are read for one page, at most: about 40 ms."""
SECOND_ROWS_MAX: Final = 16_384
"""Rows of a second that are sorted for a page, at most; larger seconds are listed unsorted."""


@dataclass(frozen=True, slots=True)
class Listed(FoundMessage):
    """One message, with its texts and, if requested, its body."""

    head: RawTexts
    body: bytes | None


@dataclass(slots=True)
class Page:
    """Messages in the order of the list, and the cursor of the next page; None at the end."""

    messages: list[Listed] = field(default_factory=list)
    cursor: str | None = None
    scanned: int = 0
    """Rows examined for it."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits on the work for one page."""

    clock: Callable[[], float]
    """Returns seconds."""
    seconds_max: float = PAGE_SECONDS
    scan_rows_max: int = SCAN_ROWS_MAX
    second_rows_max: int = SECOND_ROWS_MAX


@dataclass(slots=True)
class PageRun:
    """The progress of a page."""

    page: Page
    cursor: Cursor
    query: ListQuery
    bytes_max: int
    effort: Effort
    body_bytes: int = 0
    _spent: float = 0.0
    _began: float = 0.0

    def begin(self) -> None:
        """Start its clock."""
        self._began = self.effort.clock()

    def end(self) -> None:
        """Stop its clock while other work runs."""
        self._spent += self.effort.clock() - self._began

    @property
    def left(self) -> int:
        """Number of messages that still fit."""
        return self.query.limit - len(self.page.messages)

    @property
    def full(self) -> bool:
        """Whether no message fits any more."""
        return self.left <= 0 or self.body_bytes >= self.bytes_max

    @property
    def over(self) -> bool:
        """Whether it is full or its time is up."""
        spent = self._spent + self.effort.clock() - self._began
        return self.full or spent >= self.effort.seconds_max


class Smallest:
    """The first `count` of many rows by (due, index), in bounded memory."""

    _REDUCE_ROWS: Final = 65_536

    def __init__(self, count: int) -> None:
        self._count = count
        self._due: list[Int64Array] = []
        self._index: list[Int64Array] = []
        self._buffered = 0
        self.total = 0

    def add(self, due: Int64Array, index: Int64Array) -> None:
        """Add rows."""
        if len(due):
            self._due.append(due)
            self._index.append(index)
            self._buffered += len(due)
            self.total += len(due)
            if self._buffered > self._count + self._REDUCE_ROWS:
                self.first()

    def first(self) -> tuple[Int64Array, Int64Array]:
        """(due, index) of the first rows, in order."""
        if not self._due:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        due, index = np.concatenate(self._due), np.concatenate(self._index)
        if len(due) > self._count:
            near = due <= np.partition(due, self._count - 1)[self._count - 1]
            due, index = due[near], index[near]
        order = np.lexsort((index, due))[: self._count]
        due, index = due[order], index[order]
        self._due, self._index, self._buffered = [due], [index], len(due)
        return due, index
