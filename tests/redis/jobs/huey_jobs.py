"""Two hueys and their tasks; the consumer takes the one it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ran
import where
from huey import PriorityRedisHuey, RedisHuey
from redis.sentinel import Sentinel, SentinelConnectionPool

options: dict[str, Any] = {"url": where.URL}
if where.SENTINELS:
    pool = SentinelConnectionPool(where.MASTER, Sentinel(where.SENTINELS))
    options = {"connection_pool": pool}
huey = RedisHuey("plain", **options)
urgent = PriorityRedisHuey("urgent", **options)


@huey.task()
def add(a: int, b: int) -> int:
    ran.note(f"add:{a}+{b}")
    return a + b


@huey.task(retries=2, retry_delay=1)
def fail_once(path: str) -> str:
    ran.note("fail_once")
    if not Path(path).exists():
        Path(path).touch()
        raise ValueError("first try")
    return "second try"


@huey.task()
def fail() -> None:
    raise ValueError("this task fails")


@urgent.task()
def ranked(word: str) -> None:
    ran.note(word)
