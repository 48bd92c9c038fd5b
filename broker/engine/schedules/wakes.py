"""The order of due times on a leader: a hint, which is made of the columns.

A heap of a million entries would take 60 MB. So an entry is in one of three places, by its time:

    heap      what comes first, and what was entered for a time that was scanned
    scanned   sorted arrays of what a scan of the columns has found in the next minute
    columns   everything behind that, of which only the first time is known

A scan comes when that first time does. Entries may be stale, and the caller checks each against the
columns.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

import numpy as np

from delaylog.broker.engine.schedules.columns import Columns, buffered_in, wakes_of
from delaylog.storage.layout import NEVER_MS, Int64Array

WINDOW_MS: Final = 60_000
SCAN_ENTRIES: Final = 65_536
"""A scan that finds more ends behind those of one time, so before the minute does. The next scan
waits until half of this is left.
"""
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
        self._times, self._slots = _NOTHING
        """The scanned entries that are not in the heap yet, in order."""
        self._scanned_ms = AT_ONCE_MS
        """Everything due before this is in the heap or scanned."""
        self._unscanned_ms = NEVER_MS
        """Nothing that only the columns have is due before this."""

    def lead(self) -> None:
        """Begin. Firings that wait for a message are looked at first."""
        self.follow()
        self._leads = True
        if self._columns.count:
            # The first scan is due at once, but behind those firings.
            self._unscanned_ms = AT_ONCE_MS + 1
            self._slots = self._columns.where(buffered_in)
            self._times = np.full(len(self._slots), AT_ONCE_MS, np.int64)

    def follow(self) -> None:
        """Forget everything: another node leads."""
        self._leads = False
        self._heap.clear()
        self._times, self._slots = _NOTHING
        self._scanned_ms, self._unscanned_ms = AT_ONCE_MS, NEVER_MS

    def enter(self, slot: int, wake_ms: int) -> None:
        """Look at a slot at this time."""
        if not self._leads:
            return
        if wake_ms < self._scanned_ms or wake_ms == AT_ONCE_MS:
            heappush(self._heap, wake_ms << _SLOT_BITS | slot)
        else:
            self._unscanned_ms = min(self._unscanned_ms, wake_ms)

    def next_ms(self) -> int | None:
        """When something may be due; never later than it is."""
        if len(self._times):
            self._fill_heap()
        first = self._unscanned_ms
        if self._heap:
            first = min(first, self._heap[0] >> _SLOT_BITS)
        return None if first == NEVER_MS else first

    def look_ahead(self, now_ms: int) -> None:
        """Scan the next minute if something behind the scanned entries may be due.

        What is left of them does not keep it, unless it is much: some may be late for ever.
        Every entry of a time must be in the columns: nothing that was entered ahead of its frame is
        waiting for this.
        """
        self._fill_heap()
        if self._unscanned_ms <= now_ms and len(self._times) < SCAN_ENTRIES / 2:
            self._scan(now_ms)

    def pop(self, now_ms: int) -> tuple[int, int] | None:
        """(slot, time) of the entry that is due first; None if none is, or `look_ahead` is due."""
        self._fill_heap()
        if not self._heap:
            return None
        wake_ms, slot = self._heap[0] >> _SLOT_BITS, self._heap[0] & _SLOT_MASK
        if wake_ms > now_ms or wake_ms >= self._unscanned_ms:
            return None
        heappop(self._heap)
        return slot, wake_ms

    def all_in_order(self) -> tuple[Int64Array, Int64Array]:
        """(times, slots) of everything that waits for an instant, by time."""
        times, slots = [_NOTHING[0]], [_NOTHING[1]]
        for start, block in self._columns.used():
            wakes = wakes_of(block)
            found = np.flatnonzero(wakes != NEVER_MS)
            times.append(wakes[found])
            slots.append(start + found)
        return _in_order(np.concatenate(times), np.concatenate(slots))

    def _fill_heap(self) -> None:
        """Move scanned entries to the heap until it has the first entry of all."""
        while len(self._times):
            first = int(self._times[0]) << _SLOT_BITS | int(self._slots[0])
            if self._heap and self._heap[0] <= first:
                break
            times, slots = self._times[:REFILL].tolist(), self._slots[:REFILL].tolist()
            for wake_ms, slot in zip(times, slots, strict=True):
                heappush(self._heap, wake_ms << _SLOT_BITS | slot)
            self._times, self._slots = self._times[REFILL:], self._slots[REFILL:]

    def _scan(self, now_ms: int) -> None:
        """Append what the columns have from the end of the last scan up to a minute from now."""
        begin_ms, end_ms, unscanned_ms = self._scanned_ms, now_ms + WINDOW_MS, NEVER_MS
        found_times, found_slots = list[Int64Array](), list[Int64Array]()
        for start, block in self._columns.used():
            wakes = wakes_of(block)
            found = np.flatnonzero((wakes >= begin_ms) & (wakes < end_ms))
            found_times.append(wakes[found])
            found_slots.append(start + found)
            unscanned_ms = min(unscanned_ms, int(wakes[wakes >= end_ms].min(initial=NEVER_MS)))
        times, slots = _in_order(np.concatenate(found_times), np.concatenate(found_slots))
        if len(times) > SCAN_ENTRIES:
            # Behind all entries of one time, since the scan must end between two times.
            count = int(np.searchsorted(times, times[SCAN_ENTRIES], "right"))
            if count < len(times):
                end_ms = unscanned_ms = int(times[count])
                times, slots = times[:count], slots[:count]
        self._scanned_ms, self._unscanned_ms = end_ms, unscanned_ms
        self._times = np.concatenate((self._times, times))
        self._slots = np.concatenate((self._slots, slots))


_NOTHING: Final = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _in_order(times: Int64Array, slots: Int64Array) -> tuple[Int64Array, Int64Array]:
    order = np.lexsort((slots, times))
    return times[order], slots[order]
