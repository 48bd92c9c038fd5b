"""Counts of a topic's queues, as the original asks for them."""

from __future__ import annotations

import itertools

from tests.redis.recipes.calls import Calls
from tests.redis.recipes.camellia.keys import TopicKeys
from tests.redis.recipes.connection import Command

_MINUTE = 60_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
BORDERS = (_MINUTE, 10 * _MINUTE, 30 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY)
"""Of the time that is left; a message exactly on a border counts on both sides of it."""


def read_topic_info(calls: Calls, keys: TopicKeys, now_ms: int) -> None:
    """Send twelve counts in one trip."""
    borders = ["-inf", *(now_ms + border for border in BORDERS), "+inf"]
    commands: list[Command] = [
        ("ZCARD", keys.waiting),
        ("LLEN", keys.ready),
        ("ZCARD", keys.ack),
        *(("ZCOUNT", keys.waiting, *pair) for pair in itertools.pairwise(borders)),
    ]
    calls.many(commands)
