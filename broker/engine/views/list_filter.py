"""The request for a list, and which rows and states match it.

Columns are compared first: topic, due time, the hash of the key and the mask of the tag rule out
nearly all rows without reading a text. The stored keys and tags of the remaining rows are compared
afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgpack
import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.model import Topic, shown_kinds
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.errors import CorruptionError
from delaylog.storage.ids.id_hash import IdHash
from delaylog.storage.layout import (
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
