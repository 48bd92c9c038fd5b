"""Functions and settings for a worker of SAQ."""

from __future__ import annotations

import os
from typing import Any

import ran
from saq import Queue

queue = Queue.from_url(os.environ["SERVER_URL"])


async def add(context: dict[str, Any], *, a: int, b: int) -> int:
    ran.note(f"add:{a}+{b}")
    return a + b


async def fail_once(context: dict[str, Any]) -> str:
    ran.note("fail_once")
    if context["job"].attempts == 1:
        raise ValueError("first try")
    return "second try"


settings = {"queue": queue, "functions": [add, fail_once], "concurrency": 4}
