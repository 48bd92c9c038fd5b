"""When messages that became ready expire: refs in order of time, as hints.

A message is added when it becomes ready and has a ttl. An entry that comes due is judged by the
message's row and states, since the message may have ended long ago. Entries of such messages are
swept out once they may be half of a queue, so a queue is bounded by what is ready, not by what was
sent. Queues spill to scratch files, as the ready queues do.

Topics with a quota have a queue each: a send that needs room ends the expired messages of its own
topic. All other topics share one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from delaylog.broker.engine.ready.ordered_queue import OrderedQueue
from delaylog.storage.columns import every, some
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import NEVER_MS, Int64Array, RowArray

SHARED: Final = 0
"""The owner of the queue of all topics without a quota; other owners are numbers of topics."""
SWEEP_MIN: Final = 4_096
"""Entries that a queue may have, beyond twice those kept by the last sweep, before the next one."""
SWEEP_STEP: Final = 4_096
"""Entries swept in one step, in addition to as many as were added since the last one."""
OUTDATED_MAX: Final = 1_024
"""The heap of owners is built anew when it has more entries than this beyond two for each owner:
one that is out of date goes only when its time comes."""


class _Dated:
    """The entries of one owner."""

    __slots__ = ("_make_run", "added", "first_ms", "kept", "queue", "unswept")

    def __init__(self, make_run: Callable[[], ScratchQueue]) -> None:
        self._make_run = make_run
        self.queue = OrderedQueue(make_run)
        self.unswept: OrderedQueue | None = None
        """What a sweep has still to look at."""
        self.first_ms: int | None = None
        self.kept = 0
        self.added = 0
        """Entries added since the last step of a sweep."""

    def queues(self) -> list[OrderedQueue]:
        return [self.queue] if self.unswept is None else [self.queue, self.unswept]

    def begin_sweep(self) -> bool:
        """Begin a sweep if it is time for one; False if it is not, or one is under way."""
        if self.unswept is not None or len(self.queue) < 2 * self.kept + SWEEP_MIN:
            return False
        self.unswept, self.queue = self.queue, OrderedQueue(self._make_run)
        return True

    def end_sweep(self) -> None:
        """Everything is swept."""
        self.unswept, self.kept = None, len(self.queue)


class Expiries:
    """The expiry instants of ready messages of all topics."""

    def __init__(self, make_run: Callable[[int], ScratchQueue]) -> None:
        """`make_run` creates a scratch file; its argument is the owner."""
        self._make_run = make_run
        self._dated: dict[int, _Dated] = {}
        self._firsts: list[tuple[int, int]] = []
        """A heap of (time, owner). An entry that is not the owner's first time is out of date."""
        self._sweeping: deque[int] = deque()
        """Owners whose queues are being swept, one after another."""

    def __len__(self) -> int:
        return sum(len(queue) for dated in self._dated.values() for queue in dated.queues())

    def add(self, owner: int, refs: Int64Array, rows: RowArray) -> None:
        """Messages became ready; those without a ttl are not kept here."""
        expires_ms = rows["expires_at"].astype(np.int64)
        timed = expires_ms != NEVER_MS
        if not some(timed):
            return
        if not every(timed):
            refs, expires_ms = refs[timed], expires_ms[timed]
        dated = self._dated.get(owner)
        if dated is None:
            dated = self._dated[owner] = _Dated(partial(self._make_run, owner))
        dated.queue.push(refs, expires_ms, refs)
        dated.added += len(refs)
        if dated.begin_sweep():
            self._sweeping.append(owner)
        first_ms = int(expires_ms.min())
        if dated.first_ms is None or first_ms < dated.first_ms:
            dated.first_ms = first_ms
            self._put_first(first_ms, owner)

    def next(self) -> tuple[int, int] | None:
        """(time, owner) of the entry that comes due next; None if there is none."""
        while self._firsts:
            first_ms, owner = self._firsts[0]
            dated = self._dated.get(owner)
            if dated is not None and dated.first_ms == first_ms:
                return first_ms, owner
            heappop(self._firsts)
        return None

    def is_due(self, owner: int, now_ms: int) -> bool:
        """Whether an owner has an entry that is due."""
        dated = self._dated.get(owner)
        return dated is not None and dated.first_ms is not None and dated.first_ms <= now_ms

    def take(self, owner: int, now_ms: int, count: int) -> Int64Array:
        """Take up to `count` refs of an owner that are due; a message may come up twice."""
        if not self.is_due(owner, now_ms):
            return np.zeros(0, np.int64)
        dated = self._dated[owner]
        refs = dated.queue.pop_upto(now_ms, count)
        if dated.unswept is not None and len(refs) < count:
            refs = np.concatenate((refs, dated.unswept.pop_upto(now_ms, count - len(refs))))
        self._note_first(owner, dated)
        return refs

    def sweep(self, living: Callable[[Int64Array], tuple[Int64Array, Int64Array]]) -> None:
        """Drop entries of ended messages, a bounded number in a call.

        `living` returns those of the refs whose messages have not ended, with their times.
        """
        if not self._sweeping:
            return
        owner = self._sweeping[0]
        dated = self._dated.get(owner)
        if dated is None or dated.unswept is None:
            self._sweeping.popleft()
            return
        count, dated.added = SWEEP_STEP + dated.added, 0
        refs, expires_ms = living(dated.unswept.pop(count))
        dated.queue.push(refs, expires_ms, refs)
        if len(dated.unswept) == 0:
            self._sweeping.popleft()
            dated.end_sweep()
        self._note_first(owner, dated)

    def _note_first(self, owner: int, dated: _Dated) -> None:
        """Note when the next entry comes due, after entries were taken out."""
        firsts = [queue.first for queue in dated.queues()]
        first_ms = min((each for each in firsts if each is not None), default=None)
        before_ms, dated.first_ms = dated.first_ms, first_ms
        if first_ms is None:
            del self._dated[owner]
        elif first_ms != before_ms:
            self._put_first(first_ms, owner)

    def _put_first(self, first_ms: int, owner: int) -> None:
        heappush(self._firsts, (first_ms, owner))
        if len(self._firsts) > 2 * len(self._dated) + OUTDATED_MAX:
            self._firsts = [
                (dated.first_ms, number)
                for number, dated in self._dated.items()
                if dated.first_ms is not None
            ]
            heapify(self._firsts)

    def clear(self) -> None:
        """Forget everything: each message comes up again, or has ended."""
        for dated in self._dated.values():
            for queue in dated.queues():
                queue.clear()
        self._dated.clear()
        self._firsts.clear()
        self._sweeping.clear()
