"""Recent ids: key -> ref in memory, as an open hash table of columns.

A key is a mixed 64-bit number and never 0; a ref is positive. A slot takes sixteen bytes, where an
entry of a dict takes hundreds. Slots form buckets of eight keys, one cache line each, which fill
from the front; a key whose bucket is full goes to the next one. So a batch is looked up in one pass
of numpy over whole buckets, and rarely needs a second pass. Few keys are looked up by a loop over
the same columns. A full table is replaced by one of twice its size: every put moves a few slots
into the new table, and earlier puts have touched its pages a few at a time. So no put pays for the
growth alone.

Of several entries of a key the newest one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns import distinct, every
from delaylog.storage.layout import Int64Array
from delaylog.storage.runs.run_store import KeyArray

SLOTS_MIN: Final = 4_096
FEW_KEYS_MAX: Final = 16
"""Up to this number of keys are looked up and put one by one: numpy's fixed cost is about 10 us."""
MOVED_A_ROW: Final = 8
"""Slots of the old table that are moved for each row put. The old table is empty after puts of 1/8
of its slots in rows; the new one is full after 5/8 of them, so a fifth of that time both tables are
searched."""
OWED_ROWS: Final = 1_024
"""Slots are moved and touched for this number of rows at a time: smaller puts add up until then."""
TOUCHED_A_ROW: Final = 20
"""Slots of the next table that are touched for each row put once this one is half full: the kernel
clears a page at its first touch, and random keys touch one page each. Sixteen would suffice to
touch all slots by the time this one is full."""
_BUCKET: Final = 8
_BUCKET_BITS: Final = 3


class RecentIds:
    """The table of recent ids. It doubles when it is five eighths full."""

    def __init__(self, slots: int = SLOTS_MIN) -> None:
        """`slots` = initial number of slots, a power of two: untouched ones take no memory."""
        self._table = _Table(slots)
        self._old: _Table | None = None
        """The table whose keys are moving into `_table`."""
        self._moved = 0
        """Slots of `_old` that have been moved."""
        self._next: _Table | None = None
        """The table that will replace `_table` once that is full."""
        self._touched = 0
        """Slots of `_next` whose pages are in memory."""
        self._owed = 0
        """Rows put since slots were last moved or touched."""

    @property
    def count(self) -> int:
        """Number of keys."""
        return self._table.count + (0 if self._old is None else self._old.count)

    @property
    def slots(self) -> int:
        """Number of slots, full and free."""
        return self._table.slots

    def successor(self) -> RecentIds:
        """An empty table with room for about as many ids."""
        slots = self.slots
        return RecentIds(slots if self.count * 4 >= slots else max(slots // 4, SLOTS_MIN))

    def get(self, keys: KeyArray) -> Int64Array:
        """A ref per key, 0 where there is none."""
        if self.count == 0:
            return np.zeros(len(keys), np.int64)
        out = self._table.get(keys)
        if self._old is not None:
            missing = np.flatnonzero(out == 0)
            if len(missing):
                out[missing] = self._old.get(keys[missing])
        return out

    def get_few(self, keys: Sequence[int]) -> list[int]:
        """The same for a few keys."""
        if self.count == 0:
            return [0] * len(keys)
        out = self._table.get_few(keys)
        if self._old is not None and not all(out):
            older = self._old.get_few(keys)
            out = [ref or old for ref, old in zip(out, older, strict=True)]
        return out

    def put(self, keys: KeyArray, refs: Int64Array) -> None:
        """Store refs; of a key that comes twice the last one counts."""
        self._prepare(len(refs))
        if self._old is not None:
            self._old.leave(keys)
        self._table.put(keys, refs)

    def put_few(self, keys: Sequence[int], refs: Sequence[int]) -> None:
        """The same for a few keys."""
        self._prepare(len(refs))
        if self._old is not None:
            self._old.leave_few(keys)
        self._table.put_few(keys, refs)

    def _prepare(self, count: int) -> None:
        """Make room for this number of keys, and move or touch the slots that they owe."""
        if (self.count + count) * 8 > self.slots * 5:
            self._grow(self.count + count)
        self._owed += count
        if self._owed >= OWED_ROWS:
            if self._old is not None:
                self._move(MOVED_A_ROW * self._owed)
            elif self.count * 2 > self.slots:
                self._touch(TOUCHED_A_ROW * self._owed)
            self._owed = 0

    def _grow(self, count: int) -> None:
        if self._old is not None:
            # The table is full again before the last move ended: only one large put does this, and
            # it pays for the rest of the move.
            self._move(self._old.slots)
        slots = self.slots
        while count * 8 > slots * 5:
            slots *= 2
        made, self._next, self._touched = self._next, None, 0
        if made is None or made.slots != slots:
            made = _Table(slots)
        self._old, self._table, self._moved = self._table, made, 0

    def _touch(self, slots: int) -> None:
        """Bring the next `slots` slots of the next table into memory."""
        if self._next is None:
            self._next = _Table(2 * self.slots)
        first, self._touched = self._touched, min(self._touched + slots, self._next.slots)
        self._next.touch(first, self._touched)

    def _move(self, slots: int) -> None:
        """Move the keys in the next `slots` slots of the old table."""
        old = self._old
        assert old is not None, "a move is under way"
        first, self._moved = self._moved, min(self._moved + slots, old.slots)
        self._table.put(*old.taken_from(first, self._moved))
        if self._moved == old.slots:
            assert old.count == 0, "every key of the old table has moved"
            self._old = None

    def columns(self) -> tuple[KeyArray, Int64Array]:
        """Everything in it: keys, refs."""
        keys, refs = self._table.columns()
        if self._old is not None:
            left = self._old.columns()
            keys, refs = np.concatenate([keys, left[0]]), np.concatenate([refs, left[1]])
        return keys, refs


class _Table:
    """One table of a fixed size; the caller of `put` ensures that there is room.

    A key whose ref is 0 was removed: searches skip it and go on behind it.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.count = 0
        self._last = (slots >> _BUCKET_BITS) - 1
        self._keys = np.zeros(slots, np.uint64)
        self._refs = np.zeros(slots, np.int64)
        self._buckets = self._keys.reshape(-1, _BUCKET)
        # Access to one element takes a memoryview a third of the time that it takes numpy.
        self._keys_singly, self._refs_singly = self._keys.data, self._refs.data

    def get(self, keys: KeyArray) -> Int64Array:
        """A ref per key, 0 where there is none."""
        if len(keys) <= FEW_KEYS_MAX:
            return np.array(self.get_few(keys.tolist()), np.int64)
        out = np.zeros(len(keys), np.int64)
        places, slots = self._find(keys)
        out[places] = self._refs[slots]
        return out

    def get_few(self, keys: Sequence[int]) -> list[int]:
        """The same for a few keys."""
        refs, found = self._refs_singly, map(self._slot, keys)
        return [refs[slot] if slot >= 0 else 0 for slot in found]

    def _slot(self, key: int, *, make: bool = False) -> int:
        """The slot of a key. If it has none: a new one with `make`, else -1."""
        stored, bucket = self._keys_singly, key & self._last
        while True:
            for slot in range(bucket << _BUCKET_BITS, bucket + 1 << _BUCKET_BITS):
                found = stored[slot]
                if found == key:
                    return slot
                if found == 0:
                    if not make:
                        return -1
                    stored[slot] = key
                    return slot
            bucket = bucket + 1 & self._last

    def _find(self, keys: KeyArray) -> tuple[Int64Array, Int64Array]:
        """(places of the keys that have a slot, those slots)."""
        places: list[Int64Array] = []
        slots: list[Int64Array] = []
        left, buckets = np.arange(len(keys)), self._first_buckets(keys)
        while len(left):
            rows = self._buckets[buckets]
            hits = np.flatnonzero(rows == keys[:, None])
            at = hits >> _BUCKET_BITS
            places.append(left[at])
            slots.append((buckets[at] << _BUCKET_BITS) + (hits & _BUCKET - 1))
            full = rows[:, -1] != 0
            full[at] = False
            on = np.flatnonzero(full)
            left, keys, buckets = left[on], keys[on], buckets[on] + 1 & self._last
        if len(places) == 1:
            return places[0], slots[0]
        return np.concatenate(places), np.concatenate(slots)

    def _first_buckets(self, keys: KeyArray) -> Int64Array:
        return (keys & np.uint64(self._last)).view(np.int64)

    def put(self, keys: KeyArray, refs: Int64Array) -> None:
        """Store refs; of a key that comes twice the last one counts."""
        if len(keys) <= FEW_KEYS_MAX:
            self.put_few(keys.tolist(), refs.tolist())
            return
        buckets = self._first_buckets(keys)
        while len(keys):
            rows = self._buckets[buckets]
            # The slot that has the key, else the first free one.
            inside = (rows == 0).argmax(axis=1)
            taken = rows[:, -1] != 0
            hits = np.flatnonzero(rows == keys[:, None])
            inside[hits >> _BUCKET_BITS] = hits & _BUCKET - 1
            taken[hits >> _BUCKET_BITS] = False
            at = np.flatnonzero(~taken)
            on = self._claim((buckets[at] << _BUCKET_BITS) + inside[at], keys[at], refs[at])
            if len(at) < len(keys) or len(on):
                on = np.sort(np.concatenate([np.flatnonzero(taken), at[on]]))
            keys, refs = keys[on], refs[on]
            buckets = buckets[on] + taken[on] & self._last

    def put_few(self, keys: Sequence[int], refs: Sequence[int]) -> None:
        """The same for a few keys."""
        stored = self._refs_singly
        for key, ref in zip(keys, refs, strict=True):
            slot = self._slot(key, make=True)
            self.count += stored[slot] == 0
            stored[slot] = ref

    def _claim(self, slots: Int64Array, keys: KeyArray, refs: Int64Array) -> Int64Array:
        """Put keys into free slots, or into the slots that they have already.

        When several keys claim one free slot, one of them gets it. Returns the places of the
        others, which must look for another slot.
        """
        free = self._refs[slots] == 0
        marks = np.arange(len(slots))
        self._keys[slots], self._refs[slots] = keys, marks
        first = self._refs[slots] == marks
        self.count += int(np.count_nonzero(free & first))
        if every(first):
            self._refs[slots] = refs
            return marks[:0]
        mine = self._keys[slots] == keys
        self._refs[slots[mine]] = refs[mine]
        return np.flatnonzero(~mine)

    def leave(self, keys: KeyArray) -> None:
        """Remove these keys, if they are here: they are put into the new table."""
        if len(keys) <= FEW_KEYS_MAX:
            self.leave_few(keys.tolist())
            return
        _, slots = self._find(keys)
        slots = distinct(slots[self._refs[slots] != 0])
        self._refs[slots] = 0
        self.count -= len(slots)

    def leave_few(self, keys: Sequence[int]) -> None:
        """The same for a few keys."""
        stored = self._refs_singly
        for slot in map(self._slot, keys):
            if slot >= 0 and stored[slot]:
                stored[slot] = 0
                self.count -= 1

    def touch(self, first: int, stop: int) -> None:
        """Bring the pages of free slots into memory."""
        for column in (self._refs, self._keys):
            column[first:stop] = 0

    def taken_from(self, first: int, stop: int) -> tuple[KeyArray, Int64Array]:
        """Remove and return the keys of slots `first` to `stop`.

        Slots are counted through the first ones of all buckets, then the second ones, and so on:
        all keys of one bucket together would crowd two buckets of the new table.
        """
        turn, bucket = np.divmod(np.arange(first, stop), self._last + 1)
        at = (bucket << _BUCKET_BITS) + turn
        at = at[self._refs[at] != 0]
        keys, refs = self._keys[at], self._refs[at]
        self._refs[at] = 0
        self.count -= len(at)
        return keys, refs

    def columns(self) -> tuple[KeyArray, Int64Array]:
        """Everything in it: keys, refs."""
        at = np.flatnonzero(self._refs)
        return self._keys[at], self._refs[at]


# ---------------------------------------------------- keys of ids, and the newest entry of each

TOPIC_FACTOR: Final = 0x9E37_79B9_7F4A_7C15
_ALL: Final = (1 << 64) - 1
_ONE: Final = np.uint64(1)


def keys_of(topics: npt.NDArray[np.uint32] | int, hashes: npt.NDArray[np.uint64]) -> KeyArray:
    """Topic and id hash mixed into one key, never 0: one id has different keys in two topics."""
    if isinstance(topics, int):
        if len(hashes) <= FEW_KEYS_MAX:
            return np.array(keys_of_few(topics, hashes.tolist()), np.uint64)
        mixed: KeyArray = hashes ^ np.uint64(topics * TOPIC_FACTOR & _ALL)
    else:
        mixed = hashes ^ topics.astype(np.uint64) * np.uint64(TOPIC_FACTOR)
    np.maximum(mixed, _ONE, out=mixed)
    return mixed


def keys_of_few(topic: int, hashes: Sequence[int]) -> list[int]:
    """The same for a few ids of one topic."""
    salt = topic * TOPIC_FACTOR & _ALL
    return [each ^ salt or 1 for each in hashes]


def newest(tables: Sequence[RecentIds]) -> tuple[KeyArray, Int64Array]:
    """All ids of some tables, sorted by key. If several tables have a key, the last one counts."""
    if len(tables) == 1:
        return in_key_order(*tables[0].columns())
    joined = RecentIds()
    for table in tables:
        joined.put(*table.columns())
    return in_key_order(*joined.columns())


def in_key_order(keys: KeyArray, refs: Int64Array) -> tuple[KeyArray, Int64Array]:
    """Ids sorted by key."""
    order = np.argsort(keys)
    return keys[order], refs[order]


def lasts(keys: KeyArray) -> npt.NDArray[np.bool_]:
    """A mask of ascending keys: True for the last one of each group of equal keys."""
    lasts = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=lasts[:-1])
    return lasts


def newest_of_each(
    keys: KeyArray, refs: Int64Array, *, keep_forgotten: bool
) -> tuple[KeyArray, Int64Array]:
    """The newest entry of each key, of those of neighbouring runs, oldest first.

    Without `keep_forgotten`, forgotten ids (ref 0) are dropped.
    """
    order = np.argsort(keys, kind="stable")
    keys, refs = keys[order], refs[order]
    kept = lasts(keys)
    if not keep_forgotten:
        kept &= refs != 0
    return keys[kept], refs[kept]
