"""Copies of values, for COPY."""

from __future__ import annotations

from typing import Any

from delaylog.broker.keyspace.values.kinds import Value
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue


def copied(value: Value) -> Value:
    """The same elements, sharing nothing that can change."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, StreamValue):
        return StreamValue.from_plain(value.plain())
    kind: Any = type(value)
    made: Any = kind() if isinstance(value, SortedSetValue) else kind(value)
    # Elements are bytes and numbers, so what holds them is copied and they are not.
    for name in getattr(type(value), "__slots__", ()):
        content = getattr(value, name)
        setattr(made, name, content if isinstance(content, bool | bytes) else content.copy())
    return made  # type: ignore[no-any-return]
