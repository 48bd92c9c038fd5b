"""Two brokers of taskiq: one on a list, one on a stream with a group."""

from __future__ import annotations

import os

import ran
from taskiq import TaskiqScheduler
from taskiq_redis import (
    ListQueueBroker,
    ListRedisScheduleSource,
    RedisAsyncResultBackend,
    RedisStreamBroker,
)

url = os.environ["SERVER_URL"]
listed = ListQueueBroker(url, queue_name="listed").with_result_backend(
    RedisAsyncResultBackend(url, prefix_str="listed")
)
streamed = RedisStreamBroker(url, queue_name="streamed").with_result_backend(
    RedisAsyncResultBackend(url, prefix_str="streamed")
)
source = ListRedisScheduleSource(url)
scheduler = TaskiqScheduler(streamed, [source])


@listed.task
async def add(a: int, b: int) -> int:
    ran.note(f"listed:{a}+{b}")
    return a + b


@streamed.task
async def add_streamed(a: int, b: int) -> int:
    ran.note(f"streamed:{a}+{b}")
    return a + b
