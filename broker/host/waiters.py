"""Long polls: who waits for a topic, first come first served.

As many are woken as can carry what is there, and what they leave wakes the next ones (the receive
path sees to that), so a burst goes to few consumers and nobody wakes for nothing. Who asks with a
filter waits in a line of its own: what is of no use to one filter may be what another waits for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeAlias

_Line: TypeAlias = "OrderedDict[asyncio.Future[None], int]"
"""How many messages each takes. First come first served; whoever leaves is found at once, among ten
thousand too.
"""
TopicKey: TypeAlias = tuple[str, str]
GroupKey: TypeAlias = tuple[str, str, str]
"""Namespace, topic, group."""
WaitKey: TypeAlias = tuple[GroupKey, Hashable]
"""A group, and the filter that is asked with (None = none)."""


class Place:
    """One call's place in a line. Whoever has one leaves it in the end."""

    __slots__ = ("_key", "_looks", "_waiters", "future")

    def __init__(self, waiters: Waiters, key: WaitKey) -> None:
        self._waiters = waiters
        self._key = key
        self._looks = False
        """It was woken and its caller looks again."""
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float) -> bool:
        """True when woken, False when the time is up or the node stops."""
        future = self.future
        if not future.done():
            if seconds <= 0:
                return False
            timer = asyncio.get_running_loop().call_later(seconds, _expire, future)
            try:
                await future
            except asyncio.CancelledError:
                if future.cancelled() and not _task_cancelled():
                    return False
                raise
            finally:
                timer.cancel()
        self._looks = not future.cancelled()
        return self._looks

    def leave(self) -> None:
        """What woke it, if its caller does not look again, wakes another."""
        self._waiters.leave(self._key, self.future)
        if self.future.done() and not self.future.cancelled() and not self._looks:
            self._waiters.wake(self._key)


class Waiters:
    """Waiting receive calls by (namespace, topic, group)."""

    def __init__(self) -> None:
        self._queues: dict[WaitKey, _Line] = {}
        self._filters: dict[GroupKey, set[Hashable]] = {}
        self._closed = False

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def waiting(self, group: GroupKey) -> int:
        """How many wait for a group, whatever they filter."""
        return sum(len(self._queues[group, only]) for only in self._filters.get(group, ()))

    def groups(self) -> list[GroupKey]:
        """Groups that somebody waits for."""
        return list(self._filters)

    def join(self, key: WaitKey, takes: int = 1) -> Place:
        """Stand in a line; `takes` = how many messages the caller takes at most."""
        place = Place(self, key)
        if self._closed:
            place.future.cancel()
            return place
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = OrderedDict()
            self._filters.setdefault(key[0], set()).add(key[1])
        queue[place.future] = takes
        return place

    def leave(self, key: WaitKey, future: asyncio.Future[None]) -> None:
        """Stand in it no longer."""
        queue = self._queues.get(key)
        if queue is None:
            return
        queue.pop(future, None)
        if not queue:
            del self._queues[key]
            filters = self._filters[key[0]]
            filters.discard(key[1])
            if not filters:
                del self._filters[key[0]]

    async def wait(self, key: WaitKey, seconds: float) -> bool:
        """True when woken, False when the time is up or the node stops."""
        place = self.join(key)
        try:
            return await place.wait(seconds)
        finally:
            place.leave()

    def wake_all(self, group: GroupKey, count: int) -> None:
        """Messages are ready in a group: wake waiters of each line."""
        for only in list(self._filters.get(group, ())):
            # How many of them a filter wants is not known.
            self.wake((group, only), count if only is None else 1)

    def wake_everyone(self, group: GroupKey) -> None:
        """Wake all who wait for a group: it has gone, and they have to be told."""
        for only in list(self._filters.get(group, ())):
            for _ in range(len(self._queues[group, only])):
                self.wake((group, only))

    def wake(self, key: WaitKey, count: int = 1) -> None:
        """Wake the first waiters of a line who together take `count` messages."""
        queue = self._queues.get(key)
        while queue and count > 0:
            future, takes = queue.popitem(last=False)
            if not future.done():
                future.set_result(None)
                count -= takes

    def close(self) -> None:
        """Let every waiter return empty-handed, now and later."""
        self._closed = True
        for queue in list(self._queues.values()):
            for future in queue:
                future.cancel()


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.cancel()


def _task_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
