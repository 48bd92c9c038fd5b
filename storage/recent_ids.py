"""Recent ids: (topic, id hash) -> ref in memory, as an open hash table of columns.

Twenty bytes a slot instead of the hundreds that a dict of tuples takes, and whole batches are
looked up and stored at once, in as many passes as the longest search has steps. Steps grow by one
(in a table of a power of two they come by every slot): of steps of one there were hundreds at
three quarters full. A table that is full moves into one of twice its size a little at every put,
which was touched a little at every put before: none pays for all that came before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.layout import Int64Array

HashArray = npt.NDArray[np.uint64]
TopicArray = npt.NDArray[np.uint32]
SLOTS_MIN: Final = 1_024
MOVED_A_ROW: Final = 2
"""Slots of the old table that are moved for each row that is put: it is empty when two thirds of
what makes the new one full have come, since that takes as many rows as 3/4 of the old slots."""
MOVED_MIN: Final = 256
"""The same for a put of few rows: so that the end comes soon."""
TOUCHED_A_ROW: Final = 10
"""Slots of the next table that are touched for each row that is put once this one is half full: the
kernel clears a page at its first touch, and keys that come by chance touch one each. Eight would do
by the time this one is full."""
_TOPIC_FACTOR: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FREE: Final = 0
_LEFT: Final = -1
"""Of a slot whose key stands in the new table by now: searches go on behind it."""


class RecentIds:
    """Grows by doubling at three quarters full."""

    def __init__(self, slots: int = SLOTS_MIN) -> None:
        """With so many slots to begin with, a power of two: untouched ones take no memory."""
        self._table = _Table(slots)
        self._old: _Table | None = None
        """What is moving into `_table`."""
        self._moved = 0
        """Slots of it that are empty."""
        self._next: _Table | None = None
        """Where it will move once it is full."""
        self._touched = 0
        """Slots of that which are in memory."""

    @property
    def count(self) -> int:
        """Keys in it."""
        return self._table.count + (0 if self._old is None else self._old.count)

    @property
    def slots(self) -> int:
        """Its size."""
        return self._table.slots

    def successor(self) -> RecentIds:
        """An empty table that need not grow to hold as much again."""
        slots = self.slots
        return RecentIds(slots if self.count * 4 >= slots else max(slots // 4, SLOTS_MIN))

    def get(self, topic: int, hashes: HashArray) -> Int64Array:
        """A ref per hash of a topic, 0 where there is none."""
        out = np.zeros(len(hashes), np.int64)
        if self.count == 0:
            return out
        topics = np.full(1, topic, np.uint32)
        self._table.get(topics, hashes, out)
        if self._old is not None:
            missing = np.flatnonzero(out == 0)
            if len(missing):
                found = np.zeros(len(missing), np.int64)
                self._old.get(topics, hashes[missing], found)
                out[missing] = found
        return out

    def put(self, topics: TopicArray, hashes: HashArray, refs: Int64Array) -> None:
        """Store refs, all of them positive; of a key that comes twice the last one counts."""
        if (self.count + len(refs)) * 4 > self.slots * 3:
            self._grow(self.count + len(refs))
        if self._old is not None:
            self._old.leave(topics, hashes)
            self._move(max(MOVED_A_ROW * len(refs), MOVED_MIN))
        elif self.count * 2 > self.slots:
            self._touch(TOUCHED_A_ROW * len(refs))
        self._table.put(topics, hashes, refs)

    def _grow(self, count: int) -> None:
        if self._old is not None:
            # A put as large as all that came before it pays for that.
            self._move(self._old.slots)
        slots = self.slots
        while count * 4 > slots * 3:
            slots *= 2
        made, self._next, self._touched = self._next, None, 0
        if made is None or made.slots != slots:
            made = _Table(slots)
        self._old, self._table, self._moved = self._table, made, 0

    def _touch(self, slots: int) -> None:
        """Have the next so many slots of the next table in memory."""
        if self._next is None:
            self._next = _Table(2 * self.slots)
        first, self._touched = self._touched, min(self._touched + slots, self._next.slots)
        self._next.touch(first, self._touched)

    def _move(self, slots: int) -> None:
        """Move what stands in the next so many slots of the old table."""
        old = self._old
        assert old is not None, "it moves"
        first, self._moved = self._moved, min(self._moved + slots, old.slots)
        self._table.put(*old.taken_from(first, self._moved))
        if self._moved == old.slots:
            assert old.count == 0, "all of it has moved"
            self._old = None

    def columns(self) -> tuple[TopicArray, HashArray, Int64Array]:
        """Everything in it: topics, hashes, refs."""
        whole = self._table.columns()
        if self._old is None:
            return whole
        left = self._old.columns()
        return (
            np.concatenate([whole[0], left[0]]),
            np.concatenate([whole[1], left[1]]),
            np.concatenate([whole[2], left[2]]),
        )


class _Table:
    """One table of a fixed size; whoever puts sees to it that there is room."""

    def __init__(self, slots: int) -> None:
        self.count = 0
        self._last = slots - 1
        self._refs = np.zeros(slots, np.int64)
        self._hashes = np.zeros(slots, np.uint64)
        self._topics = np.zeros(slots, np.uint32)

    @property
    def slots(self) -> int:
        return self._last + 1

    def _start(self, topics: TopicArray, hashes: HashArray) -> Int64Array:
        mixed = (hashes ^ topics * _TOPIC_FACTOR) & np.uint64(self._last)
        return mixed.astype(np.int64)

    def get(self, topics: TopicArray, hashes: HashArray, out: Int64Array) -> None:
        """Put the ref of each key that is there into `out`. One topic may stand for all."""
        slots = self._find(topics, hashes)
        there = slots >= 0
        out[there] = self._refs[slots[there]]

    def _find(self, topics: TopicArray, hashes: HashArray) -> Int64Array:
        """The slot of each key, -1 where it is not."""
        out = np.full(len(hashes), -1, np.int64)
        left = np.arange(len(hashes))
        slots, step = self._start(topics, hashes), 1
        alike = len(topics) == 1
        while len(left):
            refs = self._refs[slots]
            hit = (refs > _FREE) & (self._hashes[slots] == hashes) & (self._topics[slots] == topics)
            out[left[hit]] = slots[hit]
            on = (refs != _FREE) & ~hit
            left, hashes = left[on], hashes[on]
            topics = topics if alike else topics[on]
            slots = slots[on] + step & self._last
            step += 1
        return out

    def put(self, topics: TopicArray, hashes: HashArray, refs: Int64Array) -> None:
        """Store refs; of a key that comes twice the last one counts."""
        slots, step = self._start(topics, hashes), 1
        while len(refs):
            free = np.flatnonzero(self._refs[slots] == _FREE)
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

    def leave(self, topics: TopicArray, hashes: HashArray) -> None:
        """These keys are put elsewhere."""
        slots = self._find(topics, hashes)
        slots = slots[slots >= 0]
        if len(slots):
            self._refs[slots] = _LEFT
            # A key that comes twice leaves once.
            self.count -= len(np.unique(slots))

    def touch(self, first: int, stop: int) -> None:
        """Have the pages of free slots in memory."""
        for column in (self._refs, self._hashes, self._topics):
            column[first:stop] = _FREE

    def taken_from(self, first: int, stop: int) -> tuple[TopicArray, HashArray, Int64Array]:
        """Take out what stands in a range of slots."""
        at = first + np.flatnonzero(self._refs[first:stop] > _FREE)
        topics, hashes, refs = self._topics[at], self._hashes[at], self._refs[at]
        self._refs[at] = _LEFT
        self.count -= len(at)
        return topics, hashes, refs

    def columns(self) -> tuple[TopicArray, HashArray, Int64Array]:
        """Everything in it: topics, hashes, refs."""
        at = np.flatnonzero(self._refs > _FREE)
        return self._topics[at], self._hashes[at], self._refs[at]
