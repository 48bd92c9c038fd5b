"""Two hueys and their tasks; the consumer takes the one it is told."""

from __future__ import annotations

import os
from pathlib import Path

import ran
from huey import PriorityRedisHuey, RedisHuey

huey = RedisHuey("plain", url=os.environ["SERVER_URL"])
urgent = PriorityRedisHuey("urgent", url=os.environ["SERVER_URL"])


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
