"""Functions and settings for a worker of SAQ."""

from __future__ import annotations

from typing import Any

import ran
import where
from redis.asyncio.sentinel import Sentinel
from saq import Queue
from saq.queue.redis import RedisQueue

if where.SENTINELS:
    queue: Queue = RedisQueue(Sentinel(where.SENTINELS).master_for(where.MASTER))
else:
    queue = Queue.from_url(where.URL)


async def add(context: dict[str, Any], *, a: int, b: int) -> int:
    ran.note(f"add:{a}+{b}")
    return a + b


async def fail_once(context: dict[str, Any]) -> str:
    ran.note("fail_once")
    if context["job"].attempts == 1:
        raise ValueError("first try")
    return "second try"


settings = {"queue": queue, "functions": [add, fail_once], "concurrency": 4}
