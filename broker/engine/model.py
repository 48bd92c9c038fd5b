"""Values of the engine: topics and their settings, results of calls, errors.

Everything here is plain data; what changes it is in the modules beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, Group
from delaylog.broker.engine.topics.rate_meter import RateMeter
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.topics.token_bucket import TokenBucket
from delaylog.storage.layout import (
    STATE_ENTRY,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)

DEFAULT_NAMESPACE: Final = "default"


@dataclass(slots=True)
class Activity:
    """What happened to a topic's messages by itself since somebody last took note.

    Not part of the state: no frame carries it and a restart begins with zeros.
    """

    released: int = 0
    """Messages that became ready at their time."""
    released_late_ms: int = 0
    """Sum of how late they did."""
    released_late_max_ms: int = 0
    timed_out: int = 0
    """Messages whose lease ended without a settle."""
    found_ended: int = 0
    """Messages found to be past their ttl or their retries."""

    def note_released(self, due_ms: Int64Array, now_ms: int) -> None:
        """Messages with these due times became ready."""
        self.released += len(due_ms)
        self.released_late_ms += now_ms * len(due_ms) - int(due_ms.sum())
        self.released_late_max_ms = max(self.released_late_max_ms, now_ms - int(due_ms.min()))


@dataclass(slots=True)
class Topic:
    """A topic: its number never changes and is never used again."""

    number: int
    namespace: str
    name: str
    settings: TopicSettings
    default: Group
    """The default group; it counts nothing while the topic has only named ones."""
    made: bool = False
    """Made by PUT (kept when empty) rather than by a first send."""
    prioritised: bool = False
    """Some message had a priority, so order asks for it."""
    own_backoffs: bool = False
    """Some message had a backoff of its own, so a retry looks for it."""
    paused: bool = False
    """Nothing is handed out."""
    sent: int = 0
    """Messages since the topic was made."""
    bytes_sent: int = 0
    """Of their records."""
    send_bucket: TokenBucket | None = None
    """What may still be sent by the rate of the quota; not state."""
    send_rate: int = 0
    """The rate that the bucket was made for."""
    made_sent_rate: RateMeter | None = None
    """`sent_rate`, if something has needed it yet."""
    used_ms: int = 0
    """When somebody last sent to it or asked for its messages; not state."""
    groups: dict[int, Group] = field(default_factory=dict)
    """The groups that see what is sent now, by number."""
    next_group: int = DEFAULT_GROUP + 1
    keep_until_ms: int = 0
    """Until when an ended message of it must stay readable."""
    last_hour: int = 0
    """The last hour that has, or had, rows of it."""
    erased: int = 0
    """Log position of the last purge that erases: what was sent before leaves no byte behind."""
    erased_here: int = 0
    """The same of the last one that this node has done."""

    @property
    def sent_rate(self) -> RateMeter:
        """Of `sent`; not state."""
        if self.made_sent_rate is None:
            self.made_sent_rate = RateMeter()
        return self.made_sent_rate

    @property
    def erasing(self) -> bool:
        """Whether this node has yet to erase what a purge asked for."""
        return self.erased > self.erased_here

    @property
    def plain(self) -> bool:
        """Whether the default group is the only one, as it is in most topics."""
        return len(self.groups) == 1 and DEFAULT_GROUP in self.groups

    @property
    def had_groups(self) -> bool:
        """Whether it ever had a named group: rows of such a one may outlive it."""
        return self.next_group > DEFAULT_GROUP + 1

    @property
    def living(self) -> int:
        """Living messages, counted once for each group that has to see them yet."""
        return sum(group.counts.living for group in self.groups.values())

    @property
    def pending(self) -> int:
        """Living messages, each once: those of the group that is furthest behind.

        What another group has yet to see, and this one has not, is left out: to know it, every
        settle would have to look into every other group.
        """
        return max((group.counts.living for group in self.groups.values()), default=0)

    def group(self, name: str) -> Group | None:
        """The group of this name."""
        return next((group for group in self.groups.values() if group.name == name), None)


@dataclass(frozen=True, slots=True)
class SendResult:
    """Per row: ref, due time, and 0 created, 1 kept, 2 replaced, 3 rejected."""

    refs: Int64Array
    deliver_at_ms: Int64Array
    results: Int64Array | int
    position: int
    """The log end this answer saw: it goes out when that is durable."""

    def code(self, row: int) -> int:
        """What became of a row."""
        return self.results if isinstance(self.results, int) else int(self.results[row])

    def part(self, first: int, n: int) -> SendResult:
        """The rows of one sender."""
        if n == len(self.refs):
            return self
        rows = slice(first, first + n)
        results = self.results if isinstance(self.results, int) else self.results[rows]
        return SendResult(self.refs[rows], self.deliver_at_ms[rows], results, self.position)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages handed out under one lease, in delivery order."""

    lease: int
    lease_until_ms: int
    origins: Int64Array
    rows: RowArray
    records: bytes
    attempts: Int64Array
    position: int
    counts: Sequence[int] = ()
    """Where several consumers share it: how many each has, under leases numbered from `lease`."""

    def apart(self) -> Iterator[Delivery]:
        """What each consumer gets."""
        if len(self.counts) < 2:
            yield self
            return
        ends = np.cumsum(self.rows["size"].astype(np.int64)).tolist()
        start = first_byte = 0
        for at, count in enumerate(self.counts):
            stop = start + count
            end_byte = ends[stop - 1]
            yield Delivery(
                self.lease + at,
                self.lease_until_ms,
                self.origins[start:stop],
                self.rows[start:stop],
                self.records[first_byte:end_byte],
                self.attempts[start:stop],
                self.position,
            )
            start, first_byte = stop, end_byte

    @property
    def count(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Outcome of ack, nack or extend: how many done, which origins were gone."""

    done: int
    gone: Int64Array
    position: int


@dataclass(frozen=True, slots=True)
class Found:
    """A message found by id: where it is now and what it is."""

    origin: int
    ref: int
    row: Any
    entry: Any
    state: MessageState


def empty_refs() -> Int64Array:
    """No refs."""
    return np.zeros(0, np.int64)


def blank_entries(n: int) -> StateArray:
    """n zeroed state entries."""
    return np.zeros(n, STATE_ENTRY)
