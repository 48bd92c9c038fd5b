"""The open streams of a node, so that events that end them reach all of them at once."""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias

from delaylog.broker.engine.errors import EngineError

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
