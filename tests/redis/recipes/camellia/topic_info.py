"""Counts of a topic's queues.

The one rule: the nine buckets count by the time that is left, both borders inclusive, so a message
that stands exactly on a border is in both; overdue ones are in the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.redis.recipes.calls import Calls
from tests.redis.recipes.camellia.keys import TopicKeys
from tests.redis.recipes.connection import Command

_MINUTE = 60_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR

BUCKETS: tuple[tuple[str, int | None, int | None], ...] = (
    ("sizeOf0To1min", None, _MINUTE),
    ("sizeOf1minTo10min", _MINUTE, 10 * _MINUTE),
    ("sizeOf10minTo30min", 10 * _MINUTE, 30 * _MINUTE),
    ("sizeOf30minTo1hour", 30 * _MINUTE, _HOUR),
    ("sizeOf1hourTo6hour", _HOUR, 6 * _HOUR),
    ("sizeOf6hourTo1day", 6 * _HOUR, _DAY),
    ("sizeOf1dayTo7day", _DAY, 7 * _DAY),
    ("sizeOf7dayTo30day", 7 * _DAY, 30 * _DAY),
    ("sizeOf30dayToInfinite", 30 * _DAY, None),
)
"""Name, least and most time left."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """How many are where."""

    topic: str
    waiting: int
    ready: int
    ack: int
    waiting_buckets: dict[str, int]


def read_topic_info(calls: Calls, keys: TopicKeys, now_ms: int) -> TopicInfo:
    """Twelve counts in one trip."""
    commands: list[Command] = [
        ("ZCARD", keys.waiting),
        ("LLEN", keys.ready),
        ("ZCARD", keys.ack),
    ]
    for _, least_ms, most_ms in BUCKETS:
        least = "-inf" if least_ms is None else now_ms + least_ms
        most = "+inf" if most_ms is None else now_ms + most_ms
        commands.append(("ZCOUNT", keys.waiting, least, most))
    waiting, ready, ack, *counts = (int(n) for n in calls.many(commands))
    buckets = {name: count for (name, _, _), count in zip(BUCKETS, counts, strict=True)}
    return TopicInfo(keys.topic, waiting, ready, ack, buckets)
