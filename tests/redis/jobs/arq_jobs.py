"""Jobs and settings for `arq`, the program; the tests' own workers take the same functions."""

from __future__ import annotations

import os
from typing import Any

import ran
from arq import Retry
from arq.connections import RedisSettings


async def add(context: dict[str, Any], a: int, b: int) -> int:
    ran.note(f"add:{a}+{b}")
    return a + b


async def fail(context: dict[str, Any]) -> None:
    ran.note("fail")
    raise ValueError("this job fails")


async def fail_once(context: dict[str, Any]) -> str:
    ran.note("fail_once")
    if context["job_try"] == 1:
        raise Retry(defer=1)
    return "second try"


async def tick(context: dict[str, Any]) -> None:
    ran.note(context["job_id"])


class Settings:
    """For `arq arq_jobs.Settings`."""

    functions = (add, fail, fail_once)
    redis_settings = RedisSettings.from_dsn(os.environ["SERVER_URL"])
    poll_delay = 0.1
