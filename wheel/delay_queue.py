"""The delay queue: non-empty slots by expiration. Its head decides when the wheel wakes next.

A key has one expiration; pushing the key again can only bring it forward. `push` returns whether
the head has changed, so that a sleeping caller can be woken earlier. While no key expires, nothing
runs.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from sortedcontainers import SortedList

Key = TypeVar("Key", bound=Hashable)


class DelayQueue(Generic[Key]):
    """Keys ordered by expiration, ties by arrival."""

    def __init__(self) -> None:
        self._order: SortedList[tuple[int, int]] = SortedList()
        self._entries: dict[Key, tuple[int, int]] = {}
        self._keys: dict[int, Key] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, key: Key, expires_ms: int) -> bool:
        """Queue `key`; True if it became the new head."""
        entry = self._entries.get(key)
        if entry is not None:
            if entry[0] <= expires_ms:
                return False
            self.discard(key)
        self._arrivals += 1
        entry = (expires_ms, self._arrivals)
        self._entries[key] = entry
        self._keys[self._arrivals] = key
        self._order.add(entry)
        return bool(self._order[0] == entry)

    def discard(self, key: Key) -> None:
        """Remove `key`, if it is queued."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._order.remove(entry)
            del self._keys[entry[1]]

    def head_ms(self) -> int | None:
        """Expiration of the head, or None when the queue is empty."""
        return self._order[0][0] if self._order else None

    def pop_due(self, now_ms: int) -> Key | None:
        """Remove and return the head if it has expired, else None."""
        if not self._order or self._order[0][0] > now_ms:
            return None
        _, arrival = self._order.pop(0)
        key = self._keys.pop(arrival)
        del self._entries[key]
        return key
