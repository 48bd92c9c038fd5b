"""Two brokers of taskiq: one on a list, one on a stream with a group."""

from __future__ import annotations

from typing import Any

import ran
import where
from taskiq import TaskiqScheduler
from taskiq_redis import (
    ListQueueBroker,
    ListQueueSentinelBroker,
    ListRedisScheduleSource,
    RedisAsyncResultBackend,
    RedisAsyncSentinelResultBackend,
    RedisStreamBroker,
    RedisStreamSentinelBroker,
)

if where.SENTINELS:
    brokers: Any = (ListQueueSentinelBroker, RedisStreamSentinelBroker)
    backend: Any = RedisAsyncSentinelResultBackend
    at: tuple[Any, ...] = (where.SENTINELS, where.MASTER)
else:
    brokers = (ListQueueBroker, RedisStreamBroker)
    backend, at = RedisAsyncResultBackend, (where.URL,)
listed, streamed = (
    broker(*at, queue_name=name).with_result_backend(backend(*at, prefix_str=name))
    for broker, name in zip(brokers, ("listed", "streamed"), strict=True)
)
source = ListRedisScheduleSource(where.URL)
scheduler = TaskiqScheduler(streamed, [source])


@listed.task
async def add(a: int, b: int) -> int:
    ran.note(f"listed:{a}+{b}")
    return a + b


@streamed.task
async def add_streamed(a: int, b: int) -> int:
    ran.note(f"streamed:{a}+{b}")
    return a + b
