"""Message filter: messages of a topic by state, due time, tag, key and failure.

Jobs, counts, lists and counts of failures have this one filter; a list adds the size of its pages.

Tags and key never change. They are compared by the hashes in the rows first, over whole columns,
and then by the stored texts. State and due time are those of the message as it is now. Who looks
at messages applies the conditions on group and failure, which rows do not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.storage.columns import Mask, some, take_rows
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.layout import Int64Array, MessageState, RowArray
from delaylog.storage.messages.rows import hash_u64, heads_of, tag_bits

FAILURE: Final = ("cause", "reason", "reason_prefix")
"""The conditions on the last failed attempt."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Conditions on a message; None = any."""

    states: frozenset[MessageState] | None = None
    due_from_ms: int | None = None
    due_to_ms: int | None = None
    """Due before this time."""
    tag: bytes | None = None
    key: bytes | None = None
    """An empty key = messages without a key."""
    group: str | None = None
    """Messages as this group sees them; None = any group."""
    cause: str | None = None
    """How the last failed attempt failed: one of `failure_table.HOW`."""
    reason: str | None = None
    """Why it failed, in the consumer's words; an empty reason = without one."""
    reason_prefix: str | None = None
    """What those words begin with."""

    @property
    def state(self) -> MessageState | None:
        """The only state, None = any; for filters of jobs, which name one at most."""
        return None if self.states is None else next(iter(self.states))

    def members(self) -> dict[str, Any]:
        """The conditions of a job by name, for answers and frames."""
        assert self.states is None or len(self.states) == 1, "a job names one state"
        members = {
            "state": None if self.state is None else self.state.name.lower(),
            "due_from": self.due_from_ms,
            "due_to": self.due_to_ms,
            "tag": None if self.tag is None else self.tag.decode(),
            "key": None if self.key is None else self.key.decode(),
            "group": self.group,
        }
        named = {name: value for name, value in members.items() if value is not None}
        return named | self.failure

    @property
    def failure(self) -> dict[str, Any]:
        """The conditions on the last failed attempt by name."""
        values = ((name, getattr(self, name)) for name in FAILURE)
        return {name: value for name, value in values if value is not None}

    @classmethod
    def of_members(cls, members: dict[str, Any]) -> MessageFilter:
        """The reverse of `members`."""
        state, tag, key = (members.get(name) for name in ("state", "tag", "key"))
        return cls(
            None if state is None else frozenset([MessageState[state.upper()]]),
            members.get("due_from"),
            members.get("due_to"),
            None if tag is None else tag.encode(),
            None if key is None else key.encode(),
            *(members.get(name) for name in ("group", *FAILURE)),
        )

    @property
    def names_failure(self) -> bool:
        """Whether it has a condition on the last failed attempt."""
        return bool(self.failure)

    @property
    def names_texts(self) -> bool:
        """Whether it has a condition on tag or key."""
        return self.tag is not None or self.key is not None

    @property
    def tag_bits(self) -> int:
        """The bits of the tag in tag masks; 0 without a tag."""
        return tag_bits(self.tag) if self.tag else 0

    def may_match(self, rows: RowArray) -> Mask:
        """Rows that may match by the hashes of their tags and key."""
        bits = np.uint64(self.tag_bits)
        mask: Mask = (rows["tag_mask"] & bits) == bits
        if self.key is not None:
            mask &= rows["key_hash"] == np.uint64(hash_u64(self.key) if self.key else 0)
        return mask

    def texts_match(self, key: bytes, tags: bytes) -> bool:
        """Whether the stored texts match; `tags` are joined by newlines."""
        return (self.key is None or key == self.key) and (
            self.tag is None or self.tag in tags.split(b"\n")
        )

    def matches(self, hours: HourStore, found: FoundMessages) -> Mask:
        """Which messages match, exactly, as they are now."""
        mask = found.known.copy()
        if self.states is not None:
            mask &= np.isin(found.states, [int(state) for state in self.states])
        due = found.rows["deliver_at"]
        if self.due_from_ms is not None:
            mask &= due >= self.due_from_ms
        if self.due_to_ms is not None:
            mask &= due < self.due_to_ms
        if self.names_texts and some(mask):
            at = np.flatnonzero(mask)
            mask[at] = self._stored_match(hours, found.refs[at], take_rows(found.rows, at))
        return mask

    def _stored_match(self, hours: HourStore, refs: Int64Array, rows: RowArray) -> list[bool]:
        """Compare the stored texts, since other texts may have the same hashes."""
        names = ("id_size", "key_size", "tags_size")
        data = hours.records(refs, heads_of(rows, *names))
        sizes = [rows[name].astype(np.int64) for name in names]
        ends = np.cumsum(np.stack(sizes, axis=1)).reshape(-1, 3).tolist()
        return [self.texts_match(data[a:b], data[b:c]) for a, b, c in ends]


ANY: Final = MessageFilter()
"""Every message."""
