"""The queue that Dyno's tests work on: its keys and how it is made."""

from __future__ import annotations

from delaylog.client.queues import DynoMessage
from tests.redis.recipes.connection import Connection
from tests.redis.recipes.dyno.dyno_queue import DynoQueue
from tests.redis.recipes.support import HandClock

BODIES = "dq.MESSAGE.jobs"
UNACK_MS = 1_000


def queue_key(shard: str) -> str:
    return f"dq.QUEUE.jobs.{shard}"


def unack_key(shard: str) -> str:
    return f"dq.UNACK.jobs.{shard}"


def make_queue(
    connection: Connection, clock: HandClock, shards: str = "abc", own: str = "b"
) -> DynoQueue:
    return DynoQueue(
        connection,
        "jobs",
        shards=list(shards),
        own_shard=own,
        prefix="dq",
        unack_ms=UNACK_MS,
        clock=clock,
        sleep=clock.sleep,
    )


def ids(messages: list[DynoMessage]) -> list[str]:
    return [message.id for message in messages]
