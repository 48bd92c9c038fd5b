"""The order of due times on a leader: a hint, which is made of the columns.

A heap of a million entries would take 60 MB. So only those of the next minute are in order: once
it is over, or most of it, the columns are scanned for the next one. What is entered for a time
within the minute goes to a heap. Entries may be stale, and the caller checks each against the
columns.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

import numpy as np

from delaylog.broker.engine.schedules.columns import Columns, buffered_in, wakes_of
from delaylog.storage.layout import NEVER_MS, Int64Array

WINDOW_MS: Final = 60_000
NEAR_MAX: Final = 65_536
"""Entries that one scan takes; the minute ends earlier if it has more."""
REFILL: Final = 256
"""Entries that go to the heap together."""
_SLOT_BITS: Final = 32
_SLOT_MASK: Final = (1 << _SLOT_BITS) - 1
AT_ONCE_MS: Final = 0
"""The due time of a look that does not wait for an instant."""


class Wakes:
    """Which slots are to be looked at, and when."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._leads = False
        self._heap: list[int] = []
        """(time, slot) in one integer."""
        self._near: tuple[Int64Array, Int64Array] = _NOTHING
        """(times, slots) of the minute in order; the first `_taken` are in the heap."""
        self._taken = 0
        self._end_ms = AT_ONCE_MS
        """Everything due before this is in the heap or near."""
        self._later_ms = NEVER_MS
        """Nothing else is due before this."""

    def lead(self) -> None:
        """Begin. Firings that wait for a message are looked at first."""
        self.follow()
        self._leads = True
        if self._columns.count:
            self._later_ms = AT_ONCE_MS + 1
            slots = self._columns.where(buffered_in)
            self._near = np.full(len(slots), AT_ONCE_MS, np.int64), slots

    def follow(self) -> None:
        """Forget everything: another node leads."""
        self._leads = False
        self._heap.clear()
        self._near, self._taken = _NOTHING, 0
        self._end_ms, self._later_ms = AT_ONCE_MS, NEVER_MS

    def enter(self, slot: int, wake_ms: int) -> None:
        """Look at a slot at this time."""
        if not self._leads:
            return
        if wake_ms < self._end_ms or wake_ms == AT_ONCE_MS:
            heappush(self._heap, wake_ms << _SLOT_BITS | slot)
        else:
            self._later_ms = min(self._later_ms, wake_ms)

    def next_ms(self) -> int | None:
        """When something may be due; never later than it is."""
        times = [self._later_ms]
        if self._heap:
            times.append(self._heap[0] >> _SLOT_BITS)
        if self._taken < len(self._near[0]):
            times.append(int(self._near[0][self._taken]))
        first = min(times)
        return None if first == NEVER_MS else first

    def look_ahead(self, now_ms: int) -> None:
        """Take the next minute from the columns if this one is over.

        What is left of this one does not keep it: some entries may be late for ever.
        Every entry of a time must be in the columns: nothing that was entered ahead of its frame is
        waiting for this.
        """
        self._refill()
        if self._later_ms <= now_ms and len(self._near[0]) - self._taken < NEAR_MAX / 2:
            self._scan(now_ms)

    @property
    def _over(self) -> bool:
        return not self._heap or self._heap[0] >> _SLOT_BITS >= self._later_ms

    def pop(self, now_ms: int) -> tuple[int, int] | None:
        """(slot, time) of the entry that is due first; None if none is, or `look_ahead` is due."""
        self._refill()
        if self._over or self._heap[0] >> _SLOT_BITS > now_ms:
            return None
        entry = heappop(self._heap)
        return entry & _SLOT_MASK, entry >> _SLOT_BITS

    def all_in_order(self) -> tuple[Int64Array, Int64Array]:
        """(times, slots) of everything that waits for an instant, by time."""
        times, slots = [_NOTHING[0]], [_NOTHING[1]]
        for start, block in self._columns.used():
            wakes = wakes_of(block)
            found = np.flatnonzero(wakes != NEVER_MS)
            times.append(wakes[found])
            slots.append(start + found)
        return _in_order(np.concatenate(times), np.concatenate(slots))

    def _refill(self) -> None:
        """Have the first entry of all in the heap."""
        while self._taken < len(self._near[0]):
            key = int(self._near[0][self._taken]) << _SLOT_BITS | int(self._near[1][self._taken])
            if self._heap and self._heap[0] <= key:
                break
            part = slice(self._taken, self._taken + REFILL)
            for wake_ms, slot in zip(*(each[part].tolist() for each in self._near), strict=True):
                heappush(self._heap, wake_ms << _SLOT_BITS | slot)
            self._taken += REFILL

    def _scan(self, now_ms: int) -> None:
        """Take the next minute from the columns, behind what is left of the present one."""
        begin_ms, end_ms, later_ms = self._end_ms, now_ms + WINDOW_MS, NEVER_MS
        times, slots = list[Int64Array](), list[Int64Array]()
        for start, block in self._columns.used():
            wakes = wakes_of(block)
            found = np.flatnonzero((wakes >= begin_ms) & (wakes < end_ms))
            times.append(wakes[found])
            slots.append(start + found)
            later_ms = min(later_ms, int(wakes[wakes >= end_ms].min(initial=NEVER_MS)))
        self._end_ms, self._later_ms = end_ms, later_ms
        found_ms, found_slots = _in_order(np.concatenate(times), np.concatenate(slots))
        if len(found_ms) > NEAR_MAX:
            # All entries of one time, so that the end lies between two times.
            cut = int(np.searchsorted(found_ms, found_ms[NEAR_MAX], "right"))
            if cut < len(found_ms):
                self._end_ms = self._later_ms = int(found_ms[cut])
                found_ms, found_slots = found_ms[:cut], found_slots[:cut]
        left = slice(self._taken, None)
        self._near = (
            np.concatenate((self._near[0][left], found_ms)),
            np.concatenate((self._near[1][left], found_slots)),
        )
        self._taken = 0


_NOTHING: Final = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _in_order(times: Int64Array, slots: Int64Array) -> tuple[Int64Array, Int64Array]:
    order = np.lexsort((slots, times))
    return times[order], slots[order]
