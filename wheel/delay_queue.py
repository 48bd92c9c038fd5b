"""The delay queue: non-empty slots by expiration. Its head decides when the wheel wakes next.

A key has one expiration; pushing the key again can only bring it forward. While no key expires,
nothing runs. The keys are in a heap, in which an item that a newer one of its key replaced stays
until it comes to the front.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

REPLACED_MAX: Final = 1_024
"""The heap is built anew when more replaced items than this, and than keys, are in it."""


class DelayQueue(Generic[Key]):
    """Keys ordered by expiration, ties by arrival."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Key]] = []
        """(expiration, arrival, key); the first item is never a replaced one."""
        self._items: dict[Key, tuple[int, int, Key]] = {}
        self._arrivals = 0
        self.head_ms: int | None = None
        """Expiration of the head, or None while the queue is empty."""

    def __len__(self) -> int:
        return len(self._items)

    def push(self, key: Key, expires_ms: int) -> None:
        """Queue `key`, or bring it forward."""
        known = self._items.get(key)
        if known is not None and known[0] <= expires_ms:
            return
        self._arrivals += 1
        # If the known item is the first one, the new one takes its place.
        self._items[key] = item = (expires_ms, self._arrivals, key)
        heappush(self._heap, item)
        if len(self._heap) > 2 * len(self._items) + REPLACED_MAX:
            self._heap = list(self._items.values())
            heapify(self._heap)
        self.head_ms = self._heap[0][0]

    def discard(self, key: Key) -> None:
        """Remove `key`, if it is queued."""
        item = self._items.pop(key, None)
        if item is not None and item is self._heap[0]:
            self._drop_replaced()

    def pop_due(self, now_ms: int) -> Key | None:
        """Remove and return the head if it has expired, else None."""
        if self.head_ms is None or self.head_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._items[key]
        self._drop_replaced()
        return key

    def _drop_replaced(self) -> None:
        heap, items = self._heap, self._items
        while heap and items.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        self.head_ms = heap[0][0] if heap else None
