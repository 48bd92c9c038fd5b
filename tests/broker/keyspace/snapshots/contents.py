"""What a keyspace holds, in a form that compares."""

from __future__ import annotations

from typing import Any

from delaylog.broker.keyspace.keyspace import Keyspace, ListValue
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue


def plain(value: Any) -> Any:
    """A value with its type and what it carries beside its elements."""
    if isinstance(value, SortedSetValue):
        return ("zset", value.large, list(value.order), value.scores)
    if isinstance(value, StreamValue):
        return ("stream", value.plain())
    return (type(value), list(value) if isinstance(value, ListValue) else value)


def contents_of(keyspace: Keyspace) -> Any:
    """All databases and libraries."""
    databases = [
        ({key: plain(value) for key, value in database.values.items()}, dict(database.expires))
        for database in keyspace.databases
    ]
    return databases, dict(keyspace.libraries)
