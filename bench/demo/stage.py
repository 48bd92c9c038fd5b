"""What the demo's processes share: how they report to the conductor and how they wait for a broker.

A child says what it has to say as one JSON object a line on standard output; the conductor alone
talks to the terminal. A client that cannot reach the broker, or is told to wait, tries again by
itself after a short pause: nobody tells it that the broker was killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Final

from delaylog.client import ApiError, ClientError, NotReached

TOPIC: Final = "departures"
PRODUCER: Final = "timetable"
RETRY_PAUSE_S: Final = 0.05
SAY_EVERY_S: Final = 0.25


def say(**facts: object) -> None:
    """Tell the conductor."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def keep_saying(facts: Callable[[], dict[str, object]]) -> None:
    """Tell the conductor the newest facts a few times a second, until cancelled."""
    while True:
        say(**facts())
        await asyncio.sleep(SAY_EVERY_S)


def now_ms() -> int:
    """The wall clock in whole milliseconds, as histories want it."""
    return time.time_ns() // 1_000_000


async def pause_after(error: ClientError) -> None:
    """Wait before the next try; a refusal that waiting cannot cure is raised again."""
    if isinstance(error, ApiError) and error.status != 503:
        raise error
    pause_s = RETRY_PAUSE_S
    if isinstance(error, ApiError) and error.retry_after_s is not None:
        pause_s = min(error.retry_after_s, 1.0)
    await asyncio.sleep(pause_s)


async def stdin_closed() -> None:
    """Return when the conductor closes our standard input: the day is over, or it has died."""
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), closed.set)
    try:
        await closed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())


def was_possibly_done(error: ClientError) -> bool:
    """Whether the call that failed so may have been carried out all the same."""
    return not isinstance(error, NotReached | ApiError)
