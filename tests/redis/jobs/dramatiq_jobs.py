"""Actors for Dramatiq with results on Redis."""

from __future__ import annotations

import dramatiq
import ran
import where
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from redis.sentinel import Sentinel

# redis-py reads for 5 s at most. A worker may take longer until it has the first result.
WAIT_S = 60
if where.SENTINELS:
    leader = Sentinel(where.SENTINELS, socket_timeout=WAIT_S).master_for(where.MASTER)
    broker, results = RedisBroker(client=leader), RedisBackend(client=leader)
else:
    broker = RedisBroker(url=where.URL)
    results = RedisBackend(url=f"{where.URL}?socket_timeout={WAIT_S}")
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
