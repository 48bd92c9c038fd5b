"""A worker of streaQ: streams, a sorted set of delays, and functions of the server (FCALL)."""

from __future__ import annotations

import os

import ran
from streaq import StreaqRetry, Worker

worker = Worker(redis_url=os.environ["SERVER_URL"], concurrency=4)


@worker.task
async def add(a: int, b: int) -> int:
    ran.note(f"add:{a}+{b}")
    return a + b


@worker.task
async def fail_once() -> str:
    ran.note("fail_once")
    if fail_once.context.tries == 1:
        raise StreaqRetry("first try", delay=1)
    return "second try"
