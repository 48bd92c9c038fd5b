"""Sorted sets of many blocks. The differential tests compare the replies."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from tests.broker.keyspace.effects import Pair


@pytest.fixture
def pair() -> Pair:
    return Pair()


def sorted_set(pair: Pair, key: bytes) -> SortedSetValue:
    value = pair.leader.databases[0].values[key]
    assert isinstance(value, SortedSetValue)
    assert {member: score for score, member in value.order} == value.scores
    return value


def test_large_sets(pair: Pair) -> None:
    """Ranks, ranges of many members, and removals cross blocks."""
    numbers = list(range(3_000))
    Random(5).shuffle(numbers)
    for number in numbers:
        pair.send(f"ZADD z {number // 2} m{number:04}")
    for line, reply in (
        ("ZRANK z m1999", ":1999"),
        ("ZREVRANK z m1999", ":1000"),
        ("ZRANGE z 2000 2001", "*2 m2000 m2001"),
        ("ZREVRANGE z 2 3", "*2 m2997 m2996"),
        ("ZCOUNT z 100 (1000", ":1800"),
        ("ZCOUNT z (100 inf", ":2798"),
        ("ZRANGEBYSCORE z (700 inf LIMIT 600 2", "*2 m2002 m2003"),
        ("ZREMRANGEBYSCORE z 100 1399", ":2600"),
        ("ZCARD z", ":400"),
        ("ZREMRANGEBYRANK z 10 -11", ":380"),
        ("ZRANGE z 9 10", "*2 m0009 m2990"),
    ):
        assert pair.send(line) == reply, line
    assert sorted_set(pair, b"z").large
