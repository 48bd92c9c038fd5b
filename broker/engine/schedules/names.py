"""From the hash of a topic and a name to a slot: the one index of schedules that is in memory.

It takes 32 bytes for each schedule at most, and is made from the columns at a start. Hashes are
keyed, so nobody can choose names that collide; two that do are told apart by their definitions.
"""

from __future__ import annotations

import numpy as np

from delaylog.storage.ids.recent_ids import SLOTS_MIN, RecentIds
from delaylog.storage.layout import Int64Array


class NameIndex:
    """hash -> slot."""

    def __init__(self) -> None:
        self._table = RecentIds()
        self._gone = 0
        """Entries that were forgotten, whose keys still take room."""

    def put(self, hashes: Int64Array, slots: Int64Array) -> None:
        """Enter slots."""
        # A table of ids has 0 for nothing.
        self._table.put(hashes.view(np.uint64), slots + 1)

    def find(self, hash_: int) -> int | None:
        """The slot of a hash."""
        found = int(self._table.get(np.array([hash_], np.int64).view(np.uint64))[0])
        return found - 1 if found else None

    def forget(self, hashes: Int64Array) -> None:
        """Remove entries."""
        self._table.put(hashes.view(np.uint64), np.zeros(len(hashes), np.int64))
        self._gone += len(hashes)
        if self._gone * 4 > self._table.slots:
            keys, refs = self._table.columns()
            slots = SLOTS_MIN
            while len(keys) * 2 > slots:
                slots *= 2
            self._table, self._gone = RecentIds(slots), 0
            self._table.put(keys, refs)
