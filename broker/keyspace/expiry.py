"""Which keys end when: buckets of a second, woken by a delay queue.

Nothing is polled. An entry is a hint: a key that was given another time, or none, is found out
when its bucket is due. A key counts once in a bucket however often it is renewed, and hints that
lead nowhere any more are dropped once they outnumber the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.wheel import DelayQueue

_BUCKET_MS: Final = 1_000
_FEW: Final = 1_024

Place = tuple[int, bytes]
"""Database number and key."""


class ExpiryWheel:
    """Hints to keys by the second in which they expire."""

    def __init__(self) -> None:
        self.buckets: dict[int, dict[Place, None]] = {}
        self._queue: DelayQueue[int] = DelayQueue()
        self._now: list[tuple[int, Place]] = []
        """Of the seconds that are due, latest first: what has not reached its millisecond yet."""
        self.hints = 0
        self.hints_max = _FEW
        """With more of them somebody should look whether they are crowded."""

    def add(self, database: int, key: bytes, at_ms: int) -> None:
        """A key is to be looked at when `at_ms` has come."""
        second = at_ms // _BUCKET_MS
        bucket = self.buckets.get(second)
        if bucket is None:
            bucket = self.buckets[second] = {}
            self._queue.push(second, second * _BUCKET_MS)
        place = (database, key)
        if place not in bucket:
            bucket[place] = None
            self.hints += 1

    def next_ms(self) -> int | None:
        """When to look next; nothing is due before."""
        head = self._queue.head_ms()
        if self._now:
            first = self._now[-1][0]
            return first if head is None else min(first, head)
        return head

    def due(self, now_ms: int, most: int, expires_at: Callable[[Place], int | None]) -> list[Place]:
        """Up to `most` keys whose time has come, by what `expires_at` says of them now."""
        while (second := self._queue.pop_due(now_ms)) is not None:
            bucket = self.buckets.pop(second)
            self.hints -= len(bucket)
            end_ms = (second + 1) * _BUCKET_MS
            for place in bucket:
                at_ms = expires_at(place)
                # One that ends later has a hint of its own in a later bucket.
                if at_ms is not None and at_ms < end_ms:
                    self._now.append((at_ms, place))
            self._now.sort(key=lambda entry: entry[0], reverse=True)
        out: list[Place] = []
        while self._now and self._now[-1][0] <= now_ms and len(out) < most:
            at_ms, place = self._now.pop()
            if expires_at(place) == at_ms:
                out.append(place)
        return out

    def crowded(self, volatile: int) -> bool:
        """Whether most hints lead nowhere, `volatile` keys being there; to be asked again once
        there are more than `hints_max`.
        """
        self.hints_max = 2 * volatile + _FEW
        return self.hints > self.hints_max
