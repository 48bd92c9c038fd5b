"""Sends a job to each of some job systems: `python send.py STEP SYSTEM=NUMBER ...`.

The job notes that it ran with the sum NUMBER+STEP.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import where
from redis.sentinel import Sentinel


def celery(a: int, b: int) -> None:
    from celery_jobs import add

    add.apply_async((a, b), ignore_result=True)


def rq(a: int, b: int) -> None:
    import redis
    from rq import Queue

    if where.SENTINELS:
        connection = Sentinel(where.SENTINELS).master_for(where.MASTER)
    else:
        connection = redis.Redis.from_url(where.URL)
    Queue(connection=connection).enqueue("rq_jobs.add", a, b)


def dramatiq(a: int, b: int) -> None:
    from dramatiq_jobs import add

    add.send(a, b)


def huey(a: int, b: int) -> None:
    from huey_jobs import add

    add(a, b)


async def taskiq_list(a: int, b: int) -> None:
    from taskiq_jobs import add, listed

    await listed.startup()
    await add.kiq(a, b)
    await listed.shutdown()


async def taskiq_stream(a: int, b: int) -> None:
    from taskiq_jobs import add_streamed, streamed

    await streamed.startup()
    await add_streamed.kiq(a, b)
    await streamed.shutdown()


async def saq(a: int, b: int) -> None:
    from saq_jobs import queue

    await queue.connect()
    await queue.enqueue("add", a=a, b=b)
    await queue.disconnect()


SENDERS: dict[str, Callable[[int, int], Awaitable[None] | None]] = {
    each.__name__: each for each in (celery, rq, dramatiq, huey, taskiq_list, taskiq_stream, saq)
}


async def main() -> None:
    step = int(sys.argv[1])
    for word in sys.argv[2:]:
        name, _, number = word.partition("=")
        sent = SENDERS[name](int(number), step)
        if sent is not None:
            await sent


asyncio.run(main())
