"""Tasks of taskiq on the delay log, without results."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from noting import note
from taskiq import SmartRetryMiddleware, TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource

from delaylog.client.job_systems.taskiq_broker import DelaylogBroker

address, _, namespace = os.environ["BROKER_URL"].rpartition("/")
broker = DelaylogBroker(address, namespace=namespace, lease=timedelta(seconds=5))
broker.add_middlewares(SmartRetryMiddleware(default_delay=1, use_jitter=False))
scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])


@broker.task
async def run(word: str) -> None:
    note(word)


@broker.task
async def slow(word: str, seconds: float) -> None:
    note(f"{word}:begin")
    await asyncio.sleep(seconds)
    note(f"{word}:end")


@broker.task(retry_on_error=True, max_retries=2)
async def fail_once(word: str) -> None:
    note(word)
    if (await asyncio.to_thread(open, os.environ["RAN_FILE"])).read().count(f"{word} ") == 1:
        raise ValueError("the first try")


@broker.task(retry_on_error=True, max_retries=2, delay=2, priority="high")
async def fail_always(word: str) -> None:
    note(word)
    raise ValueError("each try")


FAR_S = 11 * 366 * 86_400


@broker.task(retry_on_error=True, max_retries=5, delay=FAR_S)
async def too_far(word: str) -> None:
    note(word)
    raise ValueError("its retry is beyond the horizon")


@broker.task(retry_on_error=True, max_retries=5, delay=FAR_S, ack_type="when_received")
async def too_far_early(word: str) -> None:
    note(word)
    raise ValueError("its retry is beyond the horizon")


@broker.task(schedule=[{"interval": 1}])
async def tick() -> None:
    note("tick")
