"""MEMORY USAGE: the approximate size of a value."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from sys import getsizeof
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import NOT_INTEGER, SYNTAX
from delaylog.broker.keyspace.options import Option, at_least, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.kinds import HashValue, Value
from delaylog.broker.keyspace.values.stream import StreamValue

_SAMPLES: Final = 5
_OPTIONS: Final = {b"samples": Option("samples", at_least(0, SYNTAX, malformed=NOT_INTEGER))}
_KEY_BYTES: Final = 104
"""Memory of a key in the table of its database, besides its name."""


@command("memory|usage", -3, "server", "readonly", keys=(2, 2, 1))
def memory_usage(run: Run, argv: Args) -> Reply:
    """Estimate the bytes of a key and its value: [SAMPLES count], 0 = all elements."""
    samples = read_options(argv, 3, _OPTIONS).value("samples", _SAMPLES)
    value = run.database.find(argv[2])
    if value is None:
        return None
    return _KEY_BYTES + getsizeof(argv[2]) + _size_of(value, samples)


def _size_of(value: Value, samples: int) -> int:
    """Measure the container, and estimate its elements by the mean of a sample."""
    own = getsizeof(value)
    if isinstance(value, bytes | bytearray):
        return own
    if isinstance(value, StreamValue):
        return own
    elements: Iterable[object] = value
    if isinstance(value, HashValue):
        elements = value.items()
    looked, taken = 0, 0
    for element in islice(elements, samples or None):
        looked += 1
        parts = element if isinstance(element, tuple) else (element,)
        taken += sum(map(getsizeof, parts))
    return own + (taken * len(value) // looked if looked else 0)
