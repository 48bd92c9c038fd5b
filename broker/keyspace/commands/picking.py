"""Counts and random picks, shared by the commands of several families."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, TypeVar

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.options import at_least
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, to_int

Name = TypeVar("Name", bytes, int)
REPEATS_MAX: Final = 100_000
"""Most picks with repetitions; they take about 20 ms of the loop. Redis has no limit and runs out
of memory."""


def take_count(text: bytes) -> int:
    """Parse a count that may be negative. Raises CommandError."""
    count = to_int(text)
    if count < -INT64_MAX:
        raise CommandError(
            b"ERR value is out of range, value must between %d and %d" % (-INT64_MAX, INT64_MAX)
        )
    return count


def repeats(count: int) -> int:
    """Return the number of picks for a negative count, which allows repetitions.

    The collection's size does not limit such a count, so it is checked. Raises CommandError.
    """
    if -count > REPEATS_MAX:
        raise CommandError(
            b"ERR value is out of range, at most %d may be picked with repeats" % REPEATS_MAX
        )
    return -count


def pick(random: Random, names: Sequence[Name], count: int) -> list[Name]:
    """Return up to `count` different random names; a negative count allows repetitions.

    Raises CommandError.
    """
    if count < 0:
        return random.choices(names, k=repeats(count))
    return list(names) if count >= len(names) else random.sample(names, count)


take_positive: Final = at_least(0, b"ERR value is out of range, must be positive")
"""Parses a count that may be 0. Raises CommandError."""
