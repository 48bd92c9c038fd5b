"""Calls that stay open: long polls that wait for messages of a group, and open streams.

Waiters are served first come, first served. Only as many are woken as can take the ready messages.
If they leave some, the receive path wakes the next waiters. So a burst goes to few consumers, and
no consumer wakes in vain. Calls with a filter wait in a separate queue for each filter, because a
message that one filter rejects may match another. `OpenStreams` keeps the streams of a node, so
that events that end them reach all of them at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Protocol, TypeAlias

from delaylog.broker.engine.errors import EngineError, NotLeadingError, UnknownError

# -------------------------------------------------------------------------------------- streams

GroupKey: TypeAlias = tuple[str, str, str]
"""Namespace, topic, group."""
NO_GROUP: Final = ("", "", "")
"""The place of live reads, which belong to no group."""


class StopsError(EngineError):
    """The node stops. Connect again, to this node or another one."""

    code = "not_ready"


class OpenStream(Protocol):
    """A connection that gets the messages of a group as they become ready."""

    def end(self, why: EngineError) -> None:
        """End the stream; its client is told why."""


class OpenStreams:
    """Streams by group. All methods belong to the loop's thread."""

    def __init__(self) -> None:
        self._streams: dict[GroupKey, set[OpenStream]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, group: GroupKey) -> int:
        """The number of streams of a group."""
        return len(self._streams.get(group, ()))

    def add(self, group: GroupKey, stream: OpenStream) -> None:
        """Note a stream that has begun."""
        self._streams.setdefault(group, set()).add(stream)
        self._count += 1

    def remove(self, group: GroupKey, stream: OpenStream) -> None:
        """Forget a stream that has ended."""
        streams = self._streams[group]
        streams.remove(stream)
        self._count -= 1
        if not streams:
            del self._streams[group]

    def end(self, group: GroupKey, why: EngineError) -> None:
        """End all streams of a group."""
        for stream in self._streams.get(group, ()):
            stream.end(why)

    def end_groups(self, why: EngineError) -> None:
        """End the streams of all groups, but not live reads."""
        for group in self._streams.keys() - {NO_GROUP}:
            self.end(group, why)

    def end_all(self, why: EngineError) -> None:
        """End all streams."""
        for group in self._streams:
            self.end(group, why)


# ----------------------------------------------------------------------------------- long polls

_Line: TypeAlias = "OrderedDict[asyncio.Future[None], int]"
"""How many messages each waiter takes, in order of arrival. A dict, so that removing one waiter of
ten thousand is fast.
"""
TopicKey: TypeAlias = tuple[str, str]
WaitKey: TypeAlias = tuple[GroupKey, Hashable]
"""A group, and the filter of the call (None = no filter)."""


class Place:
    """One call's place in a queue. Its caller must call `leave` in the end."""

    __slots__ = ("_key", "_looks", "_waiters", "future")

    def __init__(self, waiters: Waiters, key: WaitKey) -> None:
        self._waiters = waiters
        self._key = key
        self._looks = False
        """Whether `wait` returned True, so that its caller checks for messages again."""
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float) -> bool:
        """Wait to be woken; returns False if the time is up or the node stops."""
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

    def leave(self, *, looks: bool = False) -> None:
        """Leave the queue. If the caller was woken and does not check again, wake the next one;
        `looks` = it does.
        """
        self._waiters.leave(self._key, self.future)
        if self.future.done() and not (self.future.cancelled() or self._looks or looks):
            self._waiters.wake(self._key)


class Waiters:
    """Waiting receive calls by (namespace, topic, group)."""

    def __init__(self) -> None:
        self.streams = OpenStreams()
        self._lines: dict[GroupKey, dict[Hashable, _Line]] = {}
        """The queues of each group by their filters, in the order in which these began."""
        self._closed = False

    def __len__(self) -> int:
        return sum(map(self.waiting, self._lines))

    def waiting(self, group: GroupKey) -> int:
        """Number of calls that wait for a group, with any filter."""
        return sum(map(len, self._lines.get(group, {}).values()))

    def awaited(self, group: GroupKey) -> bool:
        """Whether a call waits for a group."""
        return group in self._lines

    def groups(self) -> list[GroupKey]:
        """Groups with waiting calls."""
        return list(self._lines)

    def join(self, key: WaitKey, takes: int = 1) -> Place:
        """Enter a queue; `takes` is the largest number of messages that the caller takes."""
        place = Place(self, key)
        if self._closed:
            place.future.cancel()
            return place
        group, only = key
        lines = self._lines.setdefault(group, {})
        line = lines.get(only)
        if line is None:
            line = lines[only] = OrderedDict()
        line[place.future] = takes
        return place

    def leave(self, key: WaitKey, future: asyncio.Future[None]) -> None:
        """Remove a waiter from its queue."""
        group, only = key
        lines = self._lines.get(group, {})
        line = lines.get(only)
        if line is None:
            return
        line.pop(future, None)
        if not line:
            del lines[only]
            if not lines:
                del self._lines[group]

    def wake_all(self, group: GroupKey, count: int) -> None:
        """Messages are ready in a group: wake waiters of each of its queues."""
        for only in list(self._lines.get(group, ())):
            # How many of the messages match a filter is not known, so one waiter checks.
            self.wake((group, only), count if only is None else 1)

    def wake_everyone(self, group: GroupKey) -> None:
        """Wake all waiters of a group, for example because it was removed and their calls fail."""
        for only, line in list(self._lines.get(group, {}).items()):
            for _ in range(len(line)):
                self.wake((group, only))

    def drop(self, group: GroupKey) -> None:
        """A group was removed: wake its waiters, and end its streams."""
        self.wake_everyone(group)
        self.streams.end(group, UnknownError("the topic or its group was deleted"))

    def end_leading(self, why: NotLeadingError) -> None:
        """The node does not lead any more: wake all waiters, and end all streams."""
        for group in self.groups():
            self.wake_everyone(group)
        self.streams.end_all(why)

    def refuse(self, why: EngineError) -> None:
        """Messages may not be delivered: wake all waiters, and end the streams of groups."""
        for group in self.groups():
            self.wake_everyone(group)
        self.streams.end_groups(why)

    def wake(self, key: WaitKey, count: int = 1) -> None:
        """Wake the first waiters of a queue, enough to take `count` messages together."""
        group, only = key
        line = self._lines.get(group, {}).get(only)
        while line and count > 0:
            future, takes = line.popitem(last=False)
            if not future.done():
                future.set_result(None)
                count -= takes

    def close(self) -> None:
        """The node stops: end all streams, and make every wait return False, now and later."""
        self._closed = True
        self.streams.end_all(StopsError("the node stops; connect again"))
        for lines in self._lines.values():
            for line in lines.values():
                for future in line:
                    future.cancel()


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.cancel()


def _task_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
