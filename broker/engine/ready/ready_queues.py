"""The ready queues of a group: one for unfiltered receives, and one for each tag filter in use.

A plain topic has a first-in-first-out queue. Where priorities count, refs are ordered by two sort
keys of their rows. A filter gets its own queue when a receive first asks with it. From then on,
each ref that becomes ready is sorted once, into the queue of every filter that matches it. All
queues contain hints to the same messages, so a ref that one hands out is stale in the others. A ref
whose key is locked is parked (parking.py), and its queue goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

import numpy as np

from delaylog.broker.engine.ready.fifo_queue import FifoQueue, Refs
from delaylog.broker.engine.ready.key_gate import KeyGate
from delaylog.broker.engine.ready.ordered_queue import OrderedQueue
from delaylog.broker.engine.ready.parking_lot import ParkingLot
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.storage.columns import Mask, take_rows
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import Int64Array, RowArray

FILTERS_MAX: Final = 64
"""Filters with a queue. The least recently used one is closed to make room for another."""
FILTER_IDLE_MS: Final = 60_000
SORT_OUT_REFS: Final = 8_192
SORT_OUT_ROUNDS: Final = 8
DROP_REFS: Final = 4_096
"""Refs at the front of a queue that are looked at together, for those of ended messages."""
_LAST: Final = 1 << 40
"""Added to the first sort key: sorts behind every fresh message, whatever its priority."""

Queue: TypeAlias = FifoQueue | OrderedQueue
"""Parked refs are a FifoQueue (`UnparkedQueue`) when queues are rebuilt."""
RowsOf: TypeAlias = Callable[[Int64Array], tuple[Int64Array, RowArray]]
"""Returns those of the refs whose rows still exist, with their rows."""


@dataclass(frozen=True, slots=True)
class ReadyOrder:
    """The order of a group's ready messages, if it is not first in, first out."""

    by_priority: bool
    """Highest priority first; otherwise by due time, and by priority within a millisecond."""
    aging_ms: int = 0
    """With `by_priority`: waiting this long counts as one step of priority; 0 = never."""

    def keys(self, rows: RowArray, *, failed: bool) -> tuple[Int64Array, Int64Array]:
        """The two sort keys of rows; the lowest goes out first."""
        due = rows["deliver_at"].astype(np.int64)
        priority = rows["priority"].astype(np.int64)
        if not self.by_priority:
            return due, -priority
        if self.aging_ms:
            return due - priority * self.aging_ms, -priority
        # A failed message goes behind fresh ones, as in RMQ.
        return (_LAST - priority if failed else -priority), due


@dataclass(slots=True)
class _FilterQueue:
    queue: Queue
    used_ms: int


class ReadyQueues:
    """Ready refs of one group."""

    __slots__ = ("_filters", "_gate", "_make_run", "_queues", "_sorted", "_stale", "order")

    def __init__(
        self, make_run: Callable[[], ScratchQueue], gate: KeyGate, order: ReadyOrder | None = None
    ) -> None:
        self._make_run = make_run
        self._gate = gate
        self.order = order
        self._queues: list[Queue] = [self._queue()]
        """Read in this order; new refs go into the last one. There is hardly ever more than one."""
        self._sorted: Queue = FifoQueue(make_run)
        """With filters in use: refs that were sorted into their queues; read before `_queues`."""
        self._filters: dict[TagFilter, _FilterQueue] = {}
        self._stale = 0

    def __len__(self) -> int:
        count = len(self._sorted) if self._filters else 0
        for queue in self._queues:
            count += len(queue)
        return count

    @property
    def living(self) -> int:
        """Approximate number of refs, including parked ones, whose messages are still ready."""
        return max(len(self) + len(self._gate.parking.any) - self._stale, 0)

    def left(self, count: int) -> None:
        """`count` messages with refs here ended or were moved."""
        self._stale += count

    def dropped(self, count: int) -> None:
        """`count` refs, popped or unparked without a filter, were stale."""
        # A message may end before its ref gets here, so the count may be too high: an empty queue
        # resets it.
        if not self._stale:
            return
        some = len(self) or self._gate.parked
        self._stale = max(self._stale - count, 0) if some else 0

    def drop_front(self, ended: Callable[[Int64Array], Mask]) -> None:
        """Drop refs of ended messages from the front, if most refs may be such ones.

        Without it they would stay until the next receive, which may never come.
        """
        if self._stale < max(DROP_REFS, self.living):
            return
        queue = self._sorted if len(self._sorted) else self._first()
        refs = queue.pop(DROP_REFS)
        gone = ended(refs)
        queue.push_front(refs[~gone])
        self.dropped(int(np.count_nonzero(gone)))

    def _first(self) -> Queue:
        """The queue that is read next."""
        while len(self._queues) > 1 and not len(self._queues[0]):
            self._queues.pop(0).clear()
        return self._queues[0]

    def _queue(self) -> Queue:
        return FifoQueue(self._make_run) if self.order is None else OrderedQueue(self._make_run)

    def set_order(self, order: ReadyOrder | None) -> None:
        """Set the order of new refs; refs that are here already go out before them."""
        if order != self.order:
            self.order = order
            if not len(self._queues[-1]):
                self._queues.pop().clear()
            self._queues.append(self._queue())
            if self._filters:
                self._start_over()
            else:
                self._unsort()

    def _put(
        self, queue: Queue, refs: Int64Array, rows: RowArray | None, *, failed: bool = False
    ) -> None:
        if isinstance(queue, OrderedQueue):
            assert rows is not None, "their sort keys are needed"
            assert self.order is not None, "an ordered queue has an order"
            queue.push(refs, *self.order.keys(rows, failed=failed))
        else:
            queue.push(refs)

    def _put_first(self, queue: Queue, refs: Int64Array, rows: RowArray, *, failed: bool) -> None:
        """Put refs in front of a queue without an order; otherwise by their sort keys."""
        if self.order is None:
            # The queue may still be an ordered one, from before the order was removed.
            queue.push_front(refs)
        else:
            self._put(queue, refs, rows, failed=failed)

    def push(self, refs: Refs, rows: RowArray | None) -> None:
        """Messages became ready. `rows` are needed only if there is an order."""
        queue = self._queues[-1]
        if isinstance(queue, FifoQueue):
            queue.push(refs)
        else:
            self._put(queue, np.asarray(refs, np.int64), rows)

    def put_back(self, refs: Int64Array, rows: RowArray, *, failed: bool) -> None:
        """Messages are ready again at once: they failed, or what they waited for has ended."""
        if self._filters:
            self._put_first(self._sorted, refs, rows, failed=failed)
            self._share(refs, rows, failed=failed, first=True)
        else:
            at = 0 if self.order is None else -1
            self._put_first(self._queues[at], refs, rows, failed=failed)

    def unpark(self, only: TagFilter | None, refs: Int64Array, rows: RowArray) -> None:
        """Refs that were parked from the queue of a filter, or unfiltered, may go out now."""
        if only is not None:
            self._put_first(self._filters[only].queue, refs, rows, failed=False)
        elif self._filters:
            self._put_first(self._sorted, refs, rows, failed=False)
        else:
            self.put_back(refs, rows, failed=False)

    def pop(self, count: int, rows_of: RowsOf) -> Int64Array:
        """Up to `count` refs for an unfiltered receive."""
        if self._filters:
            # Refs are sorted into the filters' queues first: returned ones must be in them.
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

    def pop_few(self, count: int, few_max: int) -> list[int]:
        """Up to `count` refs as integers; none if there are more than `few_max`, or if `pop` would
        have to order, filter or read them.
        """
        queue = self._queues[0]
        if self._filters or len(self._queues) > 1 or isinstance(queue, OrderedQueue):
            return []
        return queue.pop_few(count, few_max)

    def in_memory(self, count: int) -> list[Int64Array]:
        """Refs that are in memory and stay: up to `count` at the front of a queue in order of
        release, all of an ordered one, and the first parked ones of each key.
        """
        lot = self._gate.parking.any
        parts: list[Int64Array] = []
        for queue in (*self._queues, self._sorted) if self._filters else self._queues:
            if isinstance(queue, OrderedQueue):
                parts += queue.in_memory()
            else:
                parts += queue.in_memory(count)
        if lot.parked:
            parts.append(lot.first_refs())
        return parts

    def living_and_front(self, parked: int, count: int) -> tuple[int, list[Int64Array]]:
        """`living`, given the number of parked refs, and `in_memory(count)`: what a scrape asks of
        each of ten thousand groups, so it is fast for one queue in order of release.
        """
        if not (parked or self._filters or len(self._queues) > 1):
            queue = self._queues[0]
            if isinstance(queue, FifoQueue):
                return max(len(queue) - self._stale, 0), queue.in_memory(count)
        return self.living, self.in_memory(count)

    def push_front(self, refs: Int64Array) -> None:
        """Return refs of `pop` that were not examined."""
        if len(refs):
            (self._sorted if self._filters else self._queues[0]).push_front(refs)

    def clear(self) -> None:
        """Drop all refs; filters stay in use."""
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
        """The lot for refs of `pop_for`, or of `pop` without a filter."""
        if only is not None:
            self._filter_queue(only, now_ms)
        return self._gate.parking.lot(only)

    def pop_for(self, only: TagFilter, count: int, now_ms: int, rows_of: RowsOf) -> Int64Array:
        """Up to `count` refs whose tag masks match a filter."""
        entry = self._filter_queue(only, now_ms)
        if self.order is not None:
            # The ref that came last may have the lowest sort key.
            self._sort_out(rows_of)
        for _ in range(SORT_OUT_ROUNDS):
            refs = entry.queue.pop(count)
            if len(refs) or not self._sort_out(rows_of, rounds=1):
                return refs
        return entry.queue.pop(count)

    def push_front_for(self, only: TagFilter, refs: Int64Array) -> None:
        """Return refs of `pop_for` that were not examined."""
        entry = self._filters.get(only)
        if entry is not None:
            entry.queue.push_front(refs)

    @property
    def unsorted(self) -> bool:
        """Whether refs are left to sort, so that another receive may find something."""
        return any(len(queue) for queue in self._queues)

    def filters_left_out(self) -> set[tuple[int, ...]]:
        """The masks of the filters in use, if most ready messages match none; else empty."""
        queues = chain(self._queues, (entry.queue for entry in self._filters.values()))
        if 2 * sum(map(len, queues)) > self.living:
            return set()
        return {only.masks for only in self._filters}

    def expire_filters(self, now_ms: int, rows_of: RowsOf) -> None:
        """Close the queues of filters that were not used for a minute.

        With an order, the last filter stays until all refs are sorted: they and later ones then
        share one queue. Otherwise sorted refs would go out before later ones that rank below them.
        """
        idle = [f for f, entry in self._filters.items() if entry.used_ms < now_ms - FILTER_IDLE_MS]
        if self.order is not None and idle and len(idle) == len(self._filters):
            self._sort_out(rows_of, rounds=1)
            if self.unsorted:
                return
            for queue in self._queues:
                queue.clear()
            self._queues, self._sorted = [self._sorted], self._queue()
        for only in idle:
            self._close(only)
        if idle and not self._filters:
            self._unsort()

    def _filter_queue(self, only: TagFilter, now_ms: int) -> _FilterQueue:
        entry = self._filters.get(only)
        if entry is None:
            if len(self._filters) >= FILTERS_MAX:
                self._close(min(self._filters, key=lambda each: self._filters[each].used_ms))
            entry = self._filters[only] = _FilterQueue(self._queue(), now_ms)
            self._start_over()
        entry.used_ms = now_ms
        return entry

    def _close(self, only: TagFilter) -> None:
        self._filters.pop(only).queue.clear()
        self._gate.drop_lot(only)

    def _start_over(self) -> None:
        """Sort all refs again, parked ones first, since they came before the rest."""
        self._unsort()
        parked = self._gate.empty_lots()
        if parked is not None:
            self._queues.insert(0, parked)
        for entry in self._filters.values():
            entry.queue.clear()
            entry.queue = self._queue()

    def _unsort(self) -> None:
        """Put sorted refs back in front of the unsorted ones."""
        if len(self._sorted):
            self._queues.insert(0, self._sorted)
        self._sorted = self._queue()

    def _sort_out(self, rows_of: RowsOf, rounds: int = SORT_OUT_ROUNDS) -> bool:
        """Sort a bounded number of refs into the filters' queues; False if there were none."""
        some = False
        for _ in range(rounds):
            refs = self._first().pop(SORT_OUT_REFS)
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
        for only, entry in self._filters.items():
            wanted = only.mask_match(masks)
            if wanted.any():
                put(entry.queue, refs[wanted], take_rows(rows, wanted), failed=failed)
