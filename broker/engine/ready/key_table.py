"""A set of 64-bit key hashes in columns: a thousand keys are added, removed or found at once.

An open hash table with slots in pairs, found by a key's upper bits. A key is in one slot of its
pair; if both are taken, which is rare as the table is kept sparse, it is in a dictionary. A set of
Python integers costs several times as much per key, mostly for fetching the integers from memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns import Mask, among, every, some
from delaylog.storage.layout import Int64Array

Keys = npt.NDArray[np.uint64]

SLOT_BITS_MIN: Final = 8
SPARSE: Final = 8
"""Slots per key, at least."""
_GROWTH_BITS: Final = 2
SLOTS_KEPT: Final = 1 << 14
"""Tables up to this size (147 KB) keep their slots when their keys go."""
_EMPTY_SHARE: Final = 16
"""Larger ones shrink when they have this many times the slots that their keys need."""
_NO_KEYS: Final = np.zeros(0, np.uint64)
_NO_MASK: Final = np.zeros(0, np.bool_)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd multiplier: if any bits of two keys differ, the upper bits of the products differ."""


def member_mask(keys: list[int], found_among: Callable[[list[int]], set[int]]) -> Mask:
    """Which of the keys are members of dictionaries, which `found_among` looks up."""
    found = found_among(keys)
    out = np.zeros(len(keys), np.bool_)
    if found:
        out[[at for at, key in enumerate(keys) if key in found]] = True
    return out


def repeated(keys: Keys) -> Mask:
    """Which keys also occur earlier in the column; 0 is no key."""
    ordered = np.sort(keys)
    same = ordered[1:] == ordered[:-1]
    same &= ordered[1:] != 0
    out = np.zeros(len(keys), np.bool_)
    if some(same):
        order = np.argsort(keys, kind="stable")
        out[order[1:][same]] = True
    return out


class TakenKeys:
    """Keys that one receive hands out: cheap to add, as only few receives look them up."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[Keys] = []

    def add(self, keys: Keys) -> None:
        """Note keys that this call hands out."""
        if len(keys):
            self._parts.append(keys)

    def find(self, keys: Keys) -> Mask:
        """Which of the keys this call hands out already; 0 is no key."""
        if not self._parts:
            return np.zeros(len(keys), np.bool_)
        taken = np.concatenate(self._parts)
        self._parts = [taken]
        found: Mask = among(keys.view(np.int64), taken.view(np.int64)) & (keys != 0)
        return found


class KeyTable:
    """The keys; 0 is no key, and only `find` may be asked for it."""

    __slots__ = ("_crowded", "_keys", "_more", "_shift", "count")

    def __init__(self) -> None:
        self.clear()

    def _begin(self, bits: int) -> None:
        self._shift = np.uint64(64 - bits)
        self._keys = np.zeros(1 << bits, np.uint64)
        # For each slot: whether `_more` contains keys that belong there.
        self._crowded = np.zeros(1 << bits, np.bool_)
        # By the pair's first slot.
        self._more: dict[int, set[int]] = {}
        self.count = 0

    def __contains__(self, key: int) -> bool:
        return bool(self.find(np.array([key], np.uint64))[0])

    def _slots(self, keys: Keys) -> Int64Array:
        return (keys * _MIX >> self._shift).view(np.int64)

    def find(self, keys: Keys) -> Mask:
        """Which of the keys are here."""
        if not self.count:
            return np.zeros(len(keys), np.bool_)
        slots = self._slots(keys)
        found: Mask = self._keys[slots] == keys
        found |= self._keys[slots ^ 1] == keys
        found &= keys != 0
        if self._more:
            crowded = self._crowded[slots]
            if some(crowded):
                for at in np.flatnonzero(crowded & ~found).tolist():
                    found[at] = int(keys[at]) in self._more[int(slots[at]) & ~1]
        return found

    def add(self, keys: Keys) -> None:
        """Add distinct keys; keys that are here already stay."""
        self._make_room(len(keys))
        if self.count:
            here = self.find(keys)
            keys = keys[~here] if some(here) else keys
        slots = self._slots(keys)
        for _ in range(2):
            free = self._keys[slots] == 0
            # If several keys have the same free slot, the last one is written.
            self._keys[slots[free]] = keys[free]
            there = self._keys[slots] == keys
            self.count += int(np.count_nonzero(there))
            if every(there):
                return
            slots, keys = slots[~there] ^ 1, keys[~there]
        for slot, key in zip(slots.tolist(), keys.tolist(), strict=True):
            self._more.setdefault(slot & ~1, set()).add(key)
            self._crowded[slot] = self._crowded[slot ^ 1] = True
        self.count += len(keys)

    def remove(self, keys: Keys) -> None:
        """Remove distinct keys; keys that are not here are ignored."""
        if not self.count:
            return
        slots = self._slots(keys)
        if self._more:
            at = np.flatnonzero(self._crowded[slots])
            for slot, key in zip(slots[at].tolist(), keys[at].tolist(), strict=True):
                self._remove_more(slot, key)
        for each in (slots, slots ^ 1):
            here = each[self._keys[each] == keys]
            self._keys[here] = 0
            self.count -= len(here)
        if len(self._keys) > max(SLOTS_KEPT, self.count * SPARSE * _EMPTY_SHARE):
            self._resize(self.count * SPARSE, SLOT_BITS_MIN)

    def _remove_more(self, slot: int, key: int) -> None:
        more = self._more.get(slot & ~1)
        if more is None or key not in more:
            return
        more.discard(key)
        self.count -= 1
        if not more:
            self._crowded[slot] = self._crowded[slot ^ 1] = False
            del self._more[slot & ~1]

    def _make_room(self, count: int) -> None:
        wanted = (self.count + count) * SPARSE
        if wanted > len(self._keys):
            self._resize(wanted, max(64 - int(self._shift), SLOT_BITS_MIN))

    def _resize(self, wanted: int, bits: int) -> None:
        keys = self.column()
        while 1 << bits < wanted:
            bits += _GROWTH_BITS
        self._begin(bits)
        self.add(keys)

    def column(self) -> Keys:
        """All keys, in no order."""
        more = [key for keys in self._more.values() for key in keys]
        return np.concatenate([self._keys[self._keys != 0], np.array(more, np.uint64)])

    def clear(self) -> None:
        """Remove all keys, and free the slots: most groups have no locked keys."""
        self._shift = np.uint64(64)
        self._keys, self._crowded = _NO_KEYS, _NO_MASK
        self._more = {}
        self.count = 0
