"""Copies of values, for COPY."""

from __future__ import annotations

from typing import Any

from delaylog.broker.keyspace.values.kinds import Value
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue


def copied(value: Value) -> Value:
    """Return a copy that shares no mutable object with `value`."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, StreamValue):
        return StreamValue.from_plain(value.plain())
    kind: Any = type(value)
    made: Any = kind() if isinstance(value, SortedSetValue) else kind(value)
    # Elements are immutable (bytes and numbers), so only the containers are copied.
    for name in getattr(type(value), "__slots__", ()):
        content = getattr(value, name)
        setattr(made, name, content if isinstance(content, bool | bytes) else content.copy())
    return made  # type: ignore[no-any-return]
