"""OBJECT: encodings of values, as Redis 7.0 would choose them."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.kinds import HashValue, ListValue, SetValue, Value
from delaylog.broker.keyspace.values.number_texts import is_int
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue

_EMBEDDED_BYTES_MAX: Final = 44


def encoding_of(value: Value) -> bytes:
    """Return the encoding that Redis would use for this value."""
    if isinstance(value, bytes):
        if len(value) <= 20 and is_int(value):
            return b"int"
        return b"embstr" if len(value) <= _EMBEDDED_BYTES_MAX else b"raw"
    if isinstance(value, bytearray):
        return b"raw"
    if isinstance(value, HashValue):
        return b"hashtable" if value.large else b"listpack"
    if isinstance(value, SetValue):
        return value.encoding
    if isinstance(value, SortedSetValue):
        return b"skiplist" if value.large else b"listpack"
    if isinstance(value, ListValue):
        return b"quicklist"
    assert isinstance(value, StreamValue)
    return b"stream"


@command("object|encoding", 3, "generic", "readonly", keys=(2, 2, 1))
def object_encoding(run: Run, argv: Args) -> Reply:
    """Return the encoding that Redis would use for this value."""
    value = run.database.find(argv[2])
    return None if value is None else encoding_of(value)
