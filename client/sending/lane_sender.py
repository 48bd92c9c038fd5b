"""LaneSender: the lanes of one shard, as the base of the senders; and the sender of a message.

The senders for asyncio and for threads differ only in how they wait; their base class has no I/O. A
message is counted in the outbox from `_add` until its batch is settled. A message with an id or key
goes to its home shard only. Other messages go round robin, skipping unreachable shards.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from delaylog.client.errors import NotReached
from delaylog.client.sending.batch import Batch, Kind, Row
from delaylog.client.sending.lane import Attempt, Lane, Limit
from delaylog.client.sending.outbox import OVERRUN, ROW_BYTES, Outbox
from delaylog.client.shards.sharding import Topology
from delaylog.client.wire.bulk import SendAnswer
from delaylog.client.wire.checks import check_topic

ENOUGH_ROWS: Final = 1_000
"""A batch of this size is complete if at most one batch is ahead of it. So the next request is
ready before the waiters of the current one wake and send again. Batches further behind grow to
`batch_max`."""
UNREACHED_FOR_S: Final = 1.0
"""How long a shard is skipped after it refused a connection."""
SPREAD: Final = 0.1
"""Calls with a time limit share a batch if they came within this share of it."""
_Key: TypeAlias = tuple[str, float | None]
"""Topic and time limit."""


class LaneSender:
    """Sends to one shard: lanes by topic and time limit, apart for messages without a home.

    A subclass sends what waits in the lanes.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        shard: str = "",
        spare: Callable[[set[str]], LaneSender | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`spare` returns another sender for messages without a home; it gets the tried shards."""
        self.shard = shard
        self._outbox = outbox
        self._spare = spare
        self._clock = clock
        self._closed = False
        limits = outbox.limits
        self._linger_s = limits.linger.total_seconds()
        self._batch_max = limits.batch_max
        self._enough = min(ENOUGH_ROWS, limits.batch_max)
        self._batch_bytes_max = limits.batch_bytes_max
        self._rows_hard = OVERRUN * limits.pending_max
        self._bytes_hard = OVERRUN * limits.pending_bytes_max
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Begin without messages: at first, and in a forked child."""

    def _can_send(self) -> bool:
        """Whether it can take over messages of another sender."""
        return True

    @abstractmethod
    def _work(self, lane: Lane) -> None:
        """Send the messages of a lane: it is new, or its first batch is complete."""

    @abstractmethod
    def _progress(self, batch: Batch) -> None:
        """Wake those who wait for a batch, rows of which have an outcome."""

    def _begin_lanes(self) -> None:
        self._pinned: dict[_Key, Lane] = {}
        self._free: dict[_Key, Lane] = {}
        self._unreached_until_s = float("-inf")

    @property
    def reachable(self) -> bool:
        """False for a while after a connection was refused."""
        return self._clock() >= self._unreached_until_s

    def _all_lanes(self) -> list[Lane]:
        """All lanes."""
        return [*self._pinned.values(), *self._free.values()]

    def _add(self, topic: str, row: Row, *, free: bool, limit_s: float | None) -> tuple[Batch, int]:
        """Queue a message, or raise OutboxFull. Returns its batch and its row number.

        `limit_s`: how long its caller waits; None if no caller does.
        """
        outbox = self._outbox
        if outbox.rows >= self._rows_hard or outbox.size_bytes >= self._bytes_hard:
            outbox.check_room()
        body, kind, time_ms, members = row
        size_bytes = len(body) + ROW_BYTES
        if members is not None:
            size_bytes += len(members.get("tags", b"")) + len(members.get("headers", b""))
        lane = (self._free if free else self._pinned).get((topic, limit_s))
        batch = None if lane is None else lane.open
        if (
            batch is None
            or batch.kind != kind
            or batch.size_bytes + size_bytes > self._batch_bytes_max
            or (limit_s is not None and self._clock() > batch.opened_at_s + SPREAD * limit_s)
        ):
            lane, batch = self._begin_batch((topic, limit_s), kind, free=free)
        number = batch.add(body, time_ms, members)
        batch.size_bytes += size_bytes
        outbox.rows += 1
        outbox.size_bytes += size_bytes
        if number + 1 >= self._enough:
            assert lane is not None
            if number + 1 >= self._batch_max or len(lane.batches) <= 2:
                lane.close_open()
                self._work(lane)
        return batch, number

    def _adopt(self, batch: Batch) -> None:
        """Take over a batch from an unreachable shard."""
        key = batch.topic, batch.limit_s
        lane = self._free.get(key) or self._begin_lane(key, free=True)
        lane.adopt(batch)
        self._work(lane)

    def _close_open(self) -> list[Batch]:
        """Close all open batches. Returns the batches that are not settled."""
        waiting: list[Batch] = []
        for lane in self._all_lanes():
            lane.close_open()
            self._work(lane)
            waiting.extend(lane.batches)
        return waiting

    def _drop_lane(self, lane: Lane) -> None:
        """Remove an idle lane. The next message of its topic creates another one."""
        lanes = self._free if lane.free else self._pinned
        key = lane.topic, lane.limit_s
        assert lane.idle
        assert lanes.get(key) is lane
        del lanes[key]
        self._outbox.producers.give_back(lane.numbering)

    def _answered(self, lane: Lane, attempt: Attempt, answer: SendAnswer) -> float:
        """Record the answer of an exchange. Returns how long to pause."""
        batch, n = attempt.batch, attempt.n
        now_s = self._clock()
        batch.shard = batch.shard or self.shard
        error = lane.answered(answer, now_s)
        if error is not None:
            return self._failed(lane, attempt, error)
        self._outbox.sent(batch, n, now_s)
        self._note_progress(batch)
        return 0.0

    def _failed(self, lane: Lane, attempt: Attempt, error: Exception) -> float:
        """Record the failure of an exchange. Returns how long to pause."""
        batch, n = attempt.batch, attempt.n
        if isinstance(error, NotReached):
            self._unreached_until_s = self._clock() + UNREACHED_FOR_S
            if batch.free and self._moved(lane, batch):
                self._outbox.retried(lane.topic, n, error)
                return 0.0
        now_s = self._clock()
        verdict = lane.failed(error, now_s)
        if verdict.rows_failed:
            self._outbox.failed(batch, verdict.rows_failed, error, now_s)
            self._note_progress(batch)
        else:
            self._outbox.retried(lane.topic, n, error)
        return verdict.pause_s

    def _expired(self, lane: Lane, attempt: Attempt) -> bool:
        """Whether there is no time left for an exchange. Then the messages have failed."""
        left_s = lane.left_s(self._clock())
        if left_s is None or left_s > 0:
            return False
        batch = attempt.batch
        verdict = lane.expire()
        error = NotReached("no time was left")
        self._outbox.failed(batch, verdict.rows_failed, error, self._clock())
        self._note_progress(batch)
        return True

    def _give_up_lane(self, lane: Lane, error: Exception, *, in_flight: bool) -> None:
        """Fail all waiting messages of a lane; `in_flight`: one of its requests is in progress."""
        for batch, rows in lane.give_up(error, in_flight=in_flight):
            self._outbox.failed(batch, rows, error, self._clock())
            self._note_progress(batch)

    def _begin_batch(self, key: _Key, kind: Kind, *, free: bool) -> tuple[Lane, Batch]:
        lane = (self._free if free else self._pinned).get(key)
        if lane is None:
            lane = self._begin_lane(key, free=free)
        batch = lane.begin(kind, self._clock())
        self._work(lane)
        return lane, batch

    def _begin_lane(self, key: _Key, *, free: bool) -> Lane:
        topic, limit_s = key
        check_topic(topic)
        outbox = self._outbox
        limit = Limit(outbox.limits.retry_for.total_seconds())
        if limit_s is not None:
            limit = Limit(limit_s, of_calls=True, strict=True)
        lane = Lane(topic, outbox.producers.take(), limit=limit, random=outbox.random, free=free)
        (self._free if free else self._pinned)[key] = lane
        return lane

    def _moved(self, lane: Lane, batch: Batch) -> bool:
        """Move the batch to another shard, if possible."""
        batch.tried.add(self.shard)
        other = None if self._spare is None else self._spare(batch.tried)
        if other is None or not other._can_send():
            # All shards were tried: wait here, then try all of them again.
            batch.tried.clear()
            return False
        released = lane.release_unreached()
        if released is None:
            return False
        other._adopt(released)
        return True

    def _note_progress(self, batch: Batch) -> None:
        if not batch.left:
            self._outbox.ended(batch)
        self._progress(batch)


# ---------------------------------------------------------------------- the sender of a message

SenderT = TypeVar("SenderT", bound=LaneSender)


class Choosing(Generic[SenderT]):
    """Mixin of a client that chooses senders; the inheriting class creates them."""

    _topology: Topology
    _senders: Sequence[SenderT]

    def _sender_for(self, id: str | None, key: str | None) -> tuple[SenderT, bool]:
        """The sender, and whether the message may go to another shard."""
        home = self._topology.home(id, key)
        if home is not None:
            return self._senders[home], False
        order = self._topology.order()
        at = next((each for each in order if self._senders[each].reachable), order[0])
        return self._senders[at], True

    def _spare_sender(self, tried: set[str]) -> SenderT | None:
        for at in self._topology.order():
            if self._senders[at].shard not in tried:
                return self._senders[at]
        return None
