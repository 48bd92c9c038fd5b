"""Expiry times of keys: one bucket a second, ordered by a delay queue.

Nothing is polled. An entry is a hint: whether the key still expires then is checked when its bucket
is due. A key is in a bucket once, however often its expiry is renewed. Stale hints are dropped once
they outnumber the valid ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.wheel import DelayQueue

_BUCKET_MS: Final = 1_000
_FEW: Final = 1_024

DatabaseKey = tuple[int, bytes]
"""Database number and key."""


class ExpiryWheel:
    """Hints to keys by the second in which they expire."""

    def __init__(self) -> None:
        self.buckets: dict[int, dict[DatabaseKey, None]] = {}
        self._queue: DelayQueue[int] = DelayQueue()
        self._now: list[tuple[int, DatabaseKey]] = []
        """Keys of seconds that are due whose millisecond has not come yet, latest first."""
        self.hints = 0
        self.hints_max = _FEW
        """Above this count the owner calls `crowded`."""

    def add(self, database: int, key: bytes, at_ms: int) -> None:
        """Add a hint that a key expires at `at_ms`."""
        second = at_ms // _BUCKET_MS
        bucket = self.buckets.get(second)
        if bucket is None:
            bucket = self.buckets[second] = {}
            self._queue.push(second, second * _BUCKET_MS)
        database_key = (database, key)
        if database_key not in bucket:
            bucket[database_key] = None
            self.hints += 1

    def next_ms(self) -> int | None:
        """Return a lower bound of the next expiry, or None."""
        head = self._queue.head_ms
        if self._now:
            first = self._now[-1][0]
            return first if head is None else min(first, head)
        return head

    def due(
        self, now_ms: int, most: int, expires_at: Callable[[DatabaseKey], int | None]
    ) -> list[DatabaseKey]:
        """Remove and return up to `most` expired keys; `expires_at` returns the expiry of a key."""
        while (second := self._queue.pop_due(now_ms)) is not None:
            bucket = self.buckets.pop(second)
            self.hints -= len(bucket)
            end_ms = (second + 1) * _BUCKET_MS
            for database_key in bucket:
                at_ms = expires_at(database_key)
                # A key that expires later has another hint in a later bucket.
                if at_ms is not None and at_ms < end_ms:
                    self._now.append((at_ms, database_key))
            self._now.sort(key=lambda entry: entry[0], reverse=True)
        out: list[DatabaseKey] = []
        while self._now and self._now[-1][0] <= now_ms and len(out) < most:
            at_ms, database_key = self._now.pop()
            if expires_at(database_key) == at_ms:
                out.append(database_key)
        return out

    def crowded(self, volatile: int) -> bool:
        """Whether most hints are stale, if `volatile` keys expire.

        Sets `hints_max`, the count above which the owner calls this again.
        """
        self.hints_max = 2 * volatile + _FEW
        return self.hints > self.hints_max
