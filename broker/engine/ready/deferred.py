"""Deferred messages: released with a key while older messages are still being loaded from disk.

After a start the backlog is loaded while new messages are served at once. Within a key that would
break the order, so a message with a key waits here, sorted by due time, until everything due before
it has been released. Messages without a key pass. The entries are hints, as in the ready queues.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from delaylog.broker.engine.ready.ordered_queue import OrderedQueue
from delaylog.storage.columns import among, every, some, take_rows
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import NEVER_MS, Int64Array, RowArray
from delaylog.wheel import NO_ENTRIES, Entries


class DeferredMessages:
    """Deferred messages of all topics."""

    def __init__(
        self,
        make_run: Callable[[], ScratchQueue],
        rows_of: Callable[[Int64Array], tuple[Int64Array, RowArray]],
    ) -> None:
        """`rows_of` returns those of the refs whose rows still exist, with their rows."""
        self._rows_of = rows_of
        self._queue = OrderedQueue(make_run)
        self._first_ms = NEVER_MS
        """Lower bound of the due times here; NEVER_MS = no message is here."""

    def __len__(self) -> int:
        return len(self._queue)

    def __bool__(self) -> bool:
        return self._first_ms != NEVER_MS

    def frees_some(self, line_ms: int | None) -> bool:
        """Whether `take` may return something."""
        return self._first_ms < (NEVER_MS if line_ms is None else line_ms)

    def sift(self, released: Entries, line_ms: int | None) -> Entries:
        """The released entries that may become ready now; the others are deferred.

        An entry due at or after `line_ms` may have an older message of its key on disk. An entry
        due after a deferred one has to wait for that one.
        """
        line_ms = min(NEVER_MS if line_ms is None else line_ms, self._first_ms)
        late = np.flatnonzero(released.due_ms >= line_ms)
        if len(late) == 0:
            return released
        refs, rows = self._rows_of(released.refs[late])
        keyed = rows["key_hash"] != 0
        if not some(keyed):
            return released
        self._put(refs[keyed], take_rows(rows, keyed))
        gone = among(released.refs, refs[keyed])
        return Entries(*(column[~gone] for column in released))

    def take(self, line_ms: int | None, count_max: int) -> Entries:
        """Up to `count_max` entries due before `line_ms`, in order."""
        if count_max <= 0 or not self.frees_some(line_ms):
            return NO_ENTRIES
        refs, rows = self._rows_of(self._queue.pop(count_max))
        due_ms = rows["deliver_at"].astype(np.int64)
        if len(due_ms):
            self._first_ms = int(due_ms[-1])
        if line_ms is not None:
            free = due_ms < line_ms
            if not every(free):
                self._first_ms = NEVER_MS
                self._put(refs[~free], take_rows(rows, ~free))
                refs, rows, due_ms = refs[free], take_rows(rows, free), due_ms[free]
        if len(self._queue) == 0:
            self._first_ms = NEVER_MS
        return Entries(due_ms, refs, rows["topic"].astype(np.int64))

    def _put(self, refs: Int64Array, rows: RowArray) -> None:
        due_ms = rows["deliver_at"].astype(np.int64)
        self._queue.push(refs, due_ms, refs)
        self._first_ms = min(self._first_ms, int(due_ms.min()))

    def clear(self) -> None:
        """Forget the hints: the messages will come up again, or have ended."""
        self._queue.clear()
        self._first_ms = NEVER_MS
