"""Recent ids: (topic, id hash) -> ref in memory, as an open hash table of columns.

Twenty bytes a slot instead of the hundreds that a dict of tuples takes, and whole batches are
looked up and stored at once, in as many passes as the longest search has steps. Steps grow by one
(in a table of a power of two they come by every slot): of steps of one there were hundreds at
three quarters full. A ref of 0 marks a free slot; nothing is ever removed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.layout import Int64Array

HashArray = npt.NDArray[np.uint64]
SLOTS_MIN: Final = 1_024
_TOPIC_FACTOR: Final = np.uint64(0x9E37_79B9_7F4A_7C15)


class RecentIds:
    """Grows by doubling at three quarters full."""

    def __init__(self, slots: int = SLOTS_MIN) -> None:
        """With so many slots to begin with, a power of two: untouched ones take no memory."""
        self.count = 0
        self._make(slots)

    @property
    def slots(self) -> int:
        """Its size."""
        return self._last + 1

    def successor(self) -> RecentIds:
        """An empty table that need not grow to hold as much again: that is a pause each time."""
        slots = self.slots
        return RecentIds(slots if self.count * 4 >= slots else max(slots // 4, SLOTS_MIN))

    def _make(self, slots: int) -> None:
        self._last = slots - 1
        self._refs = np.zeros(slots, np.int64)
        self._hashes = np.zeros(slots, np.uint64)
        self._topics = np.zeros(slots, np.uint32)

    def _start(self, topics: npt.NDArray[np.uint32], hashes: HashArray) -> Int64Array:
        mixed = (hashes ^ topics * _TOPIC_FACTOR) & np.uint64(self._last)
        return mixed.astype(np.int64)

    def get(self, topic: int, hashes: HashArray) -> Int64Array:
        """A ref per hash of a topic, 0 where there is none."""
        out = np.zeros(len(hashes), np.int64)
        if self.count == 0:
            return out
        left = np.arange(len(hashes))
        slots, step = self._start(np.full(1, topic, np.uint32), hashes), 1
        while len(left):
            refs = self._refs[slots]
            taken = refs != 0
            hit = taken & (self._hashes[slots] == hashes) & (self._topics[slots] == topic)
            out[left[hit]] = refs[hit]
            on = taken & ~hit
            left, hashes = left[on], hashes[on]
            slots = slots[on] + step & self._last
            step += 1
        return out

    def put(self, topics: npt.NDArray[np.uint32], hashes: HashArray, refs: Int64Array) -> None:
        """Store refs, none of them 0; of a key that comes twice the last one counts."""
        if (self.count + len(refs)) * 4 > (self._last + 1) * 3:
            self._grow(self.count + len(refs))
        slots, step = self._start(topics, hashes), 1
        while len(refs):
            free = np.flatnonzero(self._refs[slots] == 0)
            if len(free):
                # Of several that claim a slot one stays; the others see that it is not theirs.
                at = slots[free]
                self._hashes[at], self._topics[at] = hashes[free], topics[free]
                self._refs[at] = free
                self.count += int(np.count_nonzero(self._refs[at] == free))
            mine = (self._hashes[slots] == hashes) & (self._topics[slots] == topics)
            self._refs[slots[mine]] = refs[mine]
            on = ~mine
            topics, hashes, refs = topics[on], hashes[on], refs[on]
            slots = slots[on] + step & self._last
            step += 1

    def _grow(self, count: int) -> None:
        topics, hashes, refs = self.columns()
        slots = self._last + 1
        while count * 4 > slots * 3:
            slots *= 2
        self._make(slots)
        self.count = 0
        self.put(topics, hashes, refs)

    def columns(self) -> tuple[npt.NDArray[np.uint32], HashArray, Int64Array]:
        """Everything in it: topics, hashes, refs."""
        at = np.flatnonzero(self._refs)
        return self._topics[at], self._hashes[at], self._refs[at]
