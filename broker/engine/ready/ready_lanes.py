"""What is ready in a group: one queue for all who ask, and one for each filter that is in use.

Plain topics have a first-in-first-out queue. Where priorities count, entries are ordered by two
keys of their rows. A filter gets a queue of its own when somebody first asks with it: what comes
up is looked at once, when it is first asked for, and put into the queue of each filter that wants
it. All queues hold hints to the same messages: what one hands out is stale in the others. What a
queue brings while its key is held is parked (parking.py), behind which the queue goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from delaylog.broker.engine.deliver.filters import TagFilter
from delaylog.broker.engine.ready.key_gate import KeyGate
from delaylog.broker.engine.ready.ordered_queue import OrderedQueue
from delaylog.broker.engine.ready.parking import ParkingLot
from delaylog.broker.engine.ready.ready_queue import ReadyQueue
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.files.run_file import RunFile
from delaylog.storage.layout import Int64Array, RowArray

FILTERS_MAX: Final = 64
"""Filters with a queue; the one that was not asked for longest makes room for another."""
FILTER_IDLE_MS: Final = 60_000
SORT_OUT_REFS: Final = 8_192
SORT_OUT_ROUNDS: Final = 8
_LAST: Final = 1 << 40
"""Behind every fresh message, whatever its priority."""

Queue: TypeAlias = ReadyQueue | OrderedQueue
"""What was parked is a ReadyQueue, when all starts over."""
RowsOf: TypeAlias = Callable[[Int64Array], tuple[Int64Array, RowArray]]
"""Those of the refs that still name a row, with their rows."""


@dataclass(frozen=True, slots=True)
class Order:
    """How ready messages of a group are ordered, where it is not simply as they come up."""

    by_priority: bool
    """Highest priority first; else due time, and priority inside a millisecond."""
    aging_ms: int = 0
    """With `by_priority`: so much waiting counts as one step of priority; 0 = never."""

    def keys(self, rows: RowArray, *, failed: bool) -> tuple[Int64Array, Int64Array]:
        """The two keys of rows; the lowest goes out first."""
        due = rows["deliver_at"].astype(np.int64)
        priority = rows["priority"].astype(np.int64)
        if not self.by_priority:
            return due, -priority
        if self.aging_ms:
            return due - priority * self.aging_ms, -priority
        # One that failed waits for the fresh ones, as RMQ has it.
        return (_LAST - priority if failed else -priority), due


@dataclass(slots=True)
class _FilterLane:
    queue: Queue
    used_ms: int


class ReadyLanes:
    """Ready refs of one group."""

    __slots__ = ("_filters", "_gate", "_make_run", "_queues", "_sorted", "_stale", "order")

    def __init__(
        self, make_run: Callable[[], RunFile], gate: KeyGate, order: Order | None = None
    ) -> None:
        self._make_run = make_run
        self._gate = gate
        self.order = order
        self._queues: list[Queue] = [self._queue()]
        """Read in this order; what comes up goes into the last. There are hardly ever two."""
        self._sorted: Queue = ReadyQueue(make_run)
        """With filters: what has been put into their queues; it comes before the others."""
        self._filters: dict[TagFilter, _FilterLane] = {}
        self._stale = 0

    def __len__(self) -> int:
        return len(self._sorted) + sum(len(queue) for queue in self._queues)

    @property
    def living(self) -> int:
        """Refs, parked ones too, whose messages are still ready, as far as it was told."""
        return max(len(self) + self._gate.parked - self._stale, 0)

    def left(self, count: int) -> None:
        """So many messages whose refs are here ended or got another time."""
        self._stale += count

    def dropped(self, count: int) -> None:
        """So many refs, popped or unparked without a filter, were found to be stale."""
        # A message may have ended while it was on its way here: an empty queue sets that right.
        some = len(self) or self._gate.parked
        self._stale = max(self._stale - count, 0) if some else 0

    def _queue(self) -> Queue:
        return ReadyQueue(self._make_run) if self.order is None else OrderedQueue(self._make_run)

    def set_order(self, order: Order | None) -> None:
        """Order what comes up from now on; what is here already goes out before it."""
        if order != self.order:
            self.order = order
            self._queues.append(self._queue())
            if self._filters:
                self._start_over()
            else:
                self._unsort()

    def _put(
        self, queue: Queue, refs: Int64Array, rows: RowArray | None, *, failed: bool = False
    ) -> None:
        if isinstance(queue, OrderedQueue):
            assert rows is not None, "they say what comes first"
            assert self.order is not None, "a queue that is ordered has one"
            queue.push(refs, *self.order.keys(rows, failed=failed))
        else:
            queue.push(refs)

    def _put_first(self, queue: Queue, refs: Int64Array, rows: RowArray, *, failed: bool) -> None:
        """In front, where nothing but the order of coming up counts."""
        if self.order is None:
            # It may still be a queue from before the order was given up.
            queue.push_front(refs)
        else:
            self._put(queue, refs, rows, failed=failed)

    def push(self, refs: Int64Array, rows: RowArray | None) -> None:
        """Messages became ready; their rows are needed where there is an order."""
        self._put(self._queues[-1], refs, rows)

    def put_back(self, refs: Int64Array, rows: RowArray, *, failed: bool) -> None:
        """Messages are ready again at once: they failed, or what they waited for has ended."""
        if self._filters:
            self._put_first(self._sorted, refs, rows, failed=failed)
            self._share(refs, rows, failed=failed, first=True)
        else:
            at = 0 if self.order is None else -1
            self._put_first(self._queues[at], refs, rows, failed=failed)

    def unpark(self, only: TagFilter | None, refs: Int64Array, rows: RowArray) -> None:
        """What the queue of a filter (or of those who take any) brought may go out after all."""
        if only is not None:
            self._put_first(self._filters[only].queue, refs, rows, failed=False)
        elif self._filters:
            self._put_first(self._sorted, refs, rows, failed=False)
        else:
            self.put_back(refs, rows, failed=False)

    def pop(self, count: int, rows_of: RowsOf) -> Int64Array:
        """Up to `count` refs for who takes any."""
        if self._filters:
            # All goes by way of the filters' queues, or what is given back would never be in them.
            if self.order is not None:
                self._sort_out(rows_of)
            elif not len(self._sorted):
                self._sort_out(rows_of, rounds=1)
            return self._sorted.pop(count)
        while True:
            refs = self._queues[0].pop(count)
            if len(refs) or len(self._queues) == 1:
                return refs
            self._queues.pop(0).clear()

    def push_front(self, refs: Int64Array) -> None:
        """Give back what `pop` gave and nobody looked at."""
        if len(refs):
            (self._sorted if self._filters else self._queues[0]).push_front(refs)

    def clear(self) -> None:
        """Drop everything; filters stay."""
        for queue in (*self._queues, self._sorted, *(f.queue for f in self._filters.values())):
            queue.clear()
        self._gate.parking.clear()
        self._stale = 0

    # ------------------------------------------------------------------ filters

    @property
    def filtered(self) -> bool:
        """Whether any filter is in use."""
        return bool(self._filters)

    def lot(self, only: TagFilter | None, now_ms: int) -> ParkingLot:
        """Where what `pop_for` (or `pop`) gives is parked."""
        if only is not None:
            self._lane(only, now_ms)
        return self._gate.parking.lot(only)

    def pop_for(self, only: TagFilter, count: int, now_ms: int, rows_of: RowsOf) -> Int64Array:
        """Up to `count` refs that the masks let through for a filter."""
        lane = self._lane(only, now_ms)
        if self.order is not None:
            # What came up last may be what comes first.
            self._sort_out(rows_of)
        for _ in range(SORT_OUT_ROUNDS):
            refs = lane.queue.pop(count)
            if len(refs) or not self._sort_out(rows_of, rounds=1):
                return refs
        return lane.queue.pop(count)

    def push_front_for(self, only: TagFilter, refs: Int64Array) -> None:
        """Give back what `pop_for` gave and nobody looked at."""
        lane = self._filters.get(only)
        if lane is not None:
            lane.queue.push_front(refs)

    @property
    def unsorted(self) -> bool:
        """Whether something may still come up for who found nothing while filters are in use."""
        return any(len(queue) for queue in self._queues)

    def expire_filters(self, now_ms: int) -> None:
        """Close the queues of filters that nobody asks for any more."""
        idle = [f for f, lane in self._filters.items() if lane.used_ms < now_ms - FILTER_IDLE_MS]
        for only in idle:
            self._close(only)
        if idle and not self._filters:
            self._unsort()

    def _lane(self, only: TagFilter, now_ms: int) -> _FilterLane:
        lane = self._filters.get(only)
        if lane is None:
            if len(self._filters) >= FILTERS_MAX:
                self._close(min(self._filters, key=lambda each: self._filters[each].used_ms))
            lane = self._filters[only] = _FilterLane(self._queue(), now_ms)
            self._start_over()
        lane.used_ms = now_ms
        return lane

    def _close(self, only: TagFilter) -> None:
        self._filters.pop(only).queue.clear()
        self._gate.drop_lot(only)

    def _start_over(self) -> None:
        """All that came up is sorted out anew, what is parked first: it came before the rest."""
        self._unsort()
        parked = self._gate.empty_lots()
        if parked is not None:
            self._queues.insert(0, parked)
        for lane in self._filters.values():
            lane.queue.clear()
            lane.queue = self._queue()

    def _unsort(self) -> None:
        """What has been sorted out has to be looked at anew."""
        if len(self._sorted):
            self._queues.insert(0, self._sorted)
        self._sorted = self._queue()

    def _sort_out(self, rows_of: RowsOf, rounds: int = SORT_OUT_ROUNDS) -> bool:
        """Put a bounded part of what came up into the filters' queues; False if there was none."""
        some = False
        for _ in range(rounds):
            while len(self._queues) > 1 and not len(self._queues[0]):
                self._queues.pop(0).clear()
            refs = self._queues[0].pop(SORT_OUT_REFS)
            if not len(refs):
                break
            some = True
            refs, rows = rows_of(refs)
            self._put(self._sorted, refs, rows)
            self._share(refs, rows)
        return some

    def _share(
        self, refs: Int64Array, rows: RowArray, *, failed: bool = False, first: bool = False
    ) -> None:
        put = self._put_first if first else self._put
        masks = rows["tag_mask"]
        for only, lane in self._filters.items():
            wanted = only.mask_match(masks)
            if wanted.any():
                put(lane.queue, refs[wanted], take_rows(rows, wanted), failed=failed)
