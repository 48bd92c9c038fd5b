"""Actors for Dramatiq with results on Redis."""

from __future__ import annotations

import os

import dramatiq
import ran
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

broker = RedisBroker(url=os.environ["SERVER_URL"])
# redis-py reads for 5 s at most. A worker may take longer until it has the first result.
results = RedisBackend(url=f"{os.environ['SERVER_URL']}?socket_timeout=60")
broker.add_middleware(Results(backend=results))
dramatiq.set_broker(broker)
tried: list[bool] = []


@dramatiq.actor(store_results=True)
def add(a: int, b: int) -> int:
    ran.note(f"add:{a}+{b}")
    return a + b


@dramatiq.actor(store_results=True, max_retries=3, min_backoff=200, max_backoff=400)
def fail_once() -> str:
    ran.note("fail_once")
    tried.append(True)
    if len(tried) == 1:
        raise ValueError("first try")
    return "second try"
