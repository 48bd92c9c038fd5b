"""Values of the engine: a topic, and the results of calls. Plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.ready.expiries import SHARED
from delaylog.broker.engine.ready.ready_queues import ReadyOrder
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, Group
from delaylog.broker.engine.topics.rates import RateMeter, TokenBucket
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.storage.columns import some, take_rows
from delaylog.storage.hours.hour_store import FoundRow
from delaylog.storage.layout import (
    INDEX_ENTRY,
    STATE_ENTRY,
    STATE_NONE,
    Cause,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)
from delaylog.storage.messages.records import Record, decode_record, split_records

DEFAULT_NAMESPACE: Final = "default"
NO_TOPIC: Final = 0
"""The number that no topic has."""
REJECTED: Final = "rejected"
Numbers: TypeAlias = Int64Array | list[int]
"""A column; a list if the rows are few."""


def integers(column: Int64Array | Sequence[int]) -> Sequence[int]:
    """The values of a column as Python's integers."""
    return column.tolist() if isinstance(column, np.ndarray) else column


def shown_kind(state: int, cause: int) -> MessageState:
    """The state that clients see for a stored state and its cause."""
    if state == MessageState.CANCELLED and cause == Cause.REPLACED:
        return MessageState.REPLACED
    return MessageState(state)


def shown_kinds(entries: StateArray) -> npt.NDArray[np.uint8]:
    """The same for a column."""
    kinds = entries["state"]
    replaced = entries["cause"] == int(Cause.REPLACED)
    if not some(replaced):
        return np.asarray(kinds)
    replaced &= kinds == int(MessageState.CANCELLED)
    return np.where(replaced, int(MessageState.REPLACED), kinds).astype(np.uint8)


def cause_name(state: int, cause: int) -> str:
    """The word for a cause in answers. A nack that made a dead letter is a rejection."""
    if state == MessageState.DEAD and cause == Cause.NACK:
        return REJECTED
    return Cause(cause).name.lower()


@dataclass(slots=True)
class Activity:
    """Counters of what happened to a topic's messages without a call, since they were last read.

    Not state: no frame carries them, and a restart begins with zeros.
    """

    released: int = 0
    """Messages that became ready at their time."""
    released_late_ms: int = 0
    """Sum of their lateness."""
    released_late_max_ms: int = 0
    timed_out: int = 0
    """Messages whose lease ended without a settle."""
    found_ended: int = 0
    """Messages that ended because their ttl or their retries ran out."""

    def note_released(self, due_ms: Int64Array, now_ms: int) -> None:
        """Count messages with these due times as released now."""
        self.released += len(due_ms)
        self.released_late_ms += now_ms * len(due_ms) - int(due_ms.sum())
        self.released_late_max_ms = max(self.released_late_max_ms, now_ms - int(due_ms.min()))

    def note_one(self, late_ms: int) -> None:
        """Count one message as released `late_ms` after its due time."""
        self.released += 1
        self.released_late_ms += late_ms
        if late_ms > self.released_late_max_ms:
            self.released_late_max_ms = late_ms


@dataclass(slots=True)
class Topic:
    """A topic: its number never changes and is never used again."""

    number: int
    namespace: str
    name: str
    settings: TopicSettings
    default: Group
    """The default group; unused while the topic has only named groups."""
    made: bool = False
    """Created by a PUT, so that it is kept when empty, rather than by its first send."""
    prioritised: bool = False
    """Whether some message had a priority, so that the order considers it."""
    own_backoffs: bool = False
    """Whether some message had its own backoff, so that a retry looks for one."""
    paused: bool = False
    """Whether receives are paused."""
    sent: int = 0
    """Messages sent since the topic was created."""
    bytes_sent: int = 0
    """Bytes of their records."""
    send_bucket: TokenBucket | None = None
    """Tokens for sends, by the quota's rate; not state."""
    send_rate: int = 0
    """The rate of that bucket."""
    made_sent_rate: RateMeter | None = None
    """`sent_rate` once it is needed."""
    used_ms: int = 0
    """Time of the last send to it, or receive from it; not state."""
    groups: dict[int, Group] = field(default_factory=dict)
    """The groups that exist now, by number."""
    next_group: int = DEFAULT_GROUP + 1
    keep_until_ms: int = 0
    """Until then some ended message of it must stay readable."""
    last_hour: int = 0
    """The latest hour that has, or had, rows of it."""
    erased: int = 0
    """Log position of the last purge with `erase`: no byte of what was sent before may remain."""
    erased_here: int = 0
    """Log position of the last such purge that this node has carried out."""

    @property
    def sent_rate(self) -> RateMeter:
        """How fast `sent` grows; not state."""
        if self.made_sent_rate is None:
            self.made_sent_rate = RateMeter()
        return self.made_sent_rate

    @property
    def erasing(self) -> bool:
        """Whether this node still stores messages that a purge asked to erase."""
        return self.erased > self.erased_here

    @property
    def plain(self) -> bool:
        """Whether the default group is the only one, as it is in most topics."""
        return len(self.groups) == 1 and DEFAULT_GROUP in self.groups

    @property
    def had_groups(self) -> bool:
        """Whether it ever had a named group: rows of a dropped group may still exist."""
        return self.next_group > DEFAULT_GROUP + 1

    @property
    def living(self) -> int:
        """Living messages, counted once for each group in which they live."""
        return sum(group.counts.living for group in self.groups.values())

    @property
    def pending(self) -> int:
        """Living messages, each counted once: those of the group with the largest backlog.

        This is a lower bound: messages that live only in other groups are not counted, since
        every settle would have to look into every other group.
        """
        return max((group.counts.living for group in self.groups.values()), default=0)

    def follow_settings(self) -> None:
        """Give every group the order and the rate limit that the settings ask for now."""
        settings = self.settings
        order = None
        if settings.order == "priority":
            order = ReadyOrder(by_priority=True, aging_ms=settings.aging_ms)
        elif self.prioritised:
            order = ReadyOrder(by_priority=False)
        limit = settings.rate_limit
        for group in self.groups.values():
            group.set_order(order)
            if limit is None:
                group.bucket = None
            elif group.pace != limit:
                group.bucket = TokenBucket(limit.per_second, limit.burst)
            group.pace = limit

    @property
    def expiry_owner(self) -> int:
        """The queue of `Expiries` for its messages: its own if it has a quota."""
        return SHARED if self.settings.quota is None else self.number

    def expired_states(self, entries: StateArray) -> npt.NDArray[np.uint8]:
        """How messages with these entries end by their ttl: dead after a delivery, expired without
        one, unless the settings make those dead letters too.
        """
        unseen = MessageState.DEAD if self.settings.dead_expired else MessageState.EXPIRED
        return np.where(entries["attempts"] > 0, MessageState.DEAD, unseen).astype(np.uint8)

    def show_expired(
        self, expires_ms: npt.NDArray[np.int64], entries: StateArray, now_ms: int
    ) -> None:
        """Change `entries`, which must be copies, so that they show messages that have expired but
        whose end is still to be written.
        """
        late = (expires_ms <= now_ms) & (entries["state"] == STATE_NONE)
        if some(late):
            entries["state"][late] = self.expired_states(take_rows(entries, late))
            entries["cause"][late] = Cause.TTL
            entries["time"][late] = expires_ms[late]

    def group(self, name: str) -> Group | None:
        """The group of this name."""
        for group in self.groups.values():
            if group.name == name:
                return group
        return None


class SendResult(NamedTuple):
    """Per row: ref, due time, and 0 created, 1 kept, 2 replaced, 3 rejected."""

    refs: Numbers
    deliver_at_ms: Numbers
    results: Int64Array | int
    position: int
    """Log position that must be committed before this is answered."""

    def code(self, row: int) -> int:
        """The result of a row."""
        return self.results if isinstance(self.results, int) else int(self.results[row])

    def part(self, first: int, n: int) -> SendResult:
        """The results of `n` rows from `first` on: those of one sender of a merged batch."""
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
    """If several consumers share it: messages of each, under leases numbered from `lease` on."""

    def apart(self) -> Iterator[Delivery]:
        """The delivery of each consumer."""
        return self._parts() if len(self.counts) > 1 else iter((self,))

    def _parts(self) -> Iterator[Delivery]:
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
        """The number of messages."""
        return len(self.rows)

    def messages(self) -> Iterator[tuple[int, int, int, int, Record]]:
        """(origin, attempts, due time, priority, record) of each message. Raises what
        `split_records` raises.
        """
        rows = self.rows
        return zip(
            self.origins.tolist(),
            self.attempts.tolist(),
            rows["deliver_at"].tolist(),
            rows["priority"].tolist(),
            split_records(self.records, rows),
            strict=True,
        )


class FewDelivery(Delivery):
    """The same for few messages, which are columns only for those who read columns."""

    __slots__ = ("few", "tries")
    few: Sequence[FoundRow]
    tries: Sequence[int]
    """The number of each message's attempt."""

    def __init__(
        self,
        lease: int,
        lease_until_ms: int,
        few: Sequence[FoundRow],
        tries: Sequence[int],
        position: int,
        counts: Sequence[int] = (),
    ) -> None:
        put = object.__setattr__
        put(self, "lease", lease)
        put(self, "lease_until_ms", lease_until_ms)
        put(self, "few", few)
        put(self, "tries", tries)
        put(self, "position", position)
        put(self, "counts", counts)

    @property
    def origins(self) -> Int64Array:
        return np.array([one.row.origin for one in self.few], np.int64)

    @property
    def rows(self) -> RowArray:
        return np.frombuffer(b"".join([one.raw for one in self.few]), INDEX_ENTRY)

    @property
    def records(self) -> bytes:
        return b"".join([one.record for one in self.few])

    @property
    def attempts(self) -> Int64Array:
        return np.array(self.tries, np.int64)

    @property
    def count(self) -> int:
        return len(self.few)

    def _parts(self) -> Iterator[Delivery]:
        start = 0
        for at, count in enumerate(self.counts):
            mine = slice(start, start + count)
            start += count
            yield FewDelivery(
                self.lease + at,
                self.lease_until_ms,
                self.few[mine],
                self.tries[mine],
                self.position,
            )

    def messages(self) -> Iterator[tuple[int, int, int, int, Record]]:
        for tries, (_, _, row, _, record) in zip(self.tries, self.few, strict=True):
            decoded = decode_record(record, row)
            yield row.origin, tries, row.deliver_at, row.priority, decoded


class Settlement(NamedTuple):
    """Outcome of ack, nack or extend: how many were settled, and which origins were gone."""

    done: int
    gone: Int64Array | Sequence[int]
    position: int

    @property
    def gone_column(self) -> Int64Array:
        """`gone` as an array."""
        return np.asarray(self.gone, "<i8")


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """One message of a look-up: its row and state as they are now."""

    origin: int
    ref: int
    row: Any
    entry: Any
    state: MessageState


class Part(NamedTuple):
    """Messages as columns, with their records if these have been read."""

    refs: Int64Array
    rows: RowArray
    entries: StateArray
    records: bytes | None = None

    def take(self, at: Int64Array | npt.NDArray[np.bool_]) -> Part:
        """The messages at `at`, in that order, without the records."""
        return Part(self.refs[at], take_rows(self.rows, at), take_rows(self.entries, at))

    def first(self, count: int) -> Part:
        """The first `count` messages."""
        if count >= len(self.refs):
            return self
        return Part(self.refs[:count], self.rows[:count], self.entries[:count])


def empty_refs() -> Int64Array:
    """An array without refs."""
    return np.zeros(0, np.int64)


def blank_entries(n: int) -> StateArray:
    """n zeroed state entries."""
    return np.zeros(n, STATE_ENTRY)
