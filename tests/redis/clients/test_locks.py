"""The locks of redis-py: SET NX with a time to live, polling, and scripts to extend and release."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import redis

from tests.redis.servers import TIMEOUT_S, RedisServer


def test_a_lock_is_held_by_one(client: redis.Redis) -> None:
    mine = client.lock("l", timeout=30)
    yours = client.lock("l", timeout=30, blocking=False)
    assert mine.acquire() is True
    assert mine.locked() is True
    assert mine.owned() is True
    assert yours.acquire() is False
    assert yours.owned() is False
    assert mine.extend(30) is True
    assert 30_000 < client.pttl("l") <= 60_000
    assert mine.reacquire() is True
    assert 0 < client.pttl("l") <= 30_000
    mine.release()
    assert yours.acquire() is True
    yours.release()
    assert client.exists("l") == 0


def test_a_lock_runs_out_and_not_early(client: redis.Redis) -> None:
    mine = client.lock("l", timeout=0.4)
    begin = time.monotonic()
    assert mine.acquire()
    with client.lock("l", timeout=30, sleep=0.01, blocking_timeout=20):
        assert time.monotonic() - begin >= 0.4
        with pytest.raises(redis.exceptions.LockError):
            mine.release()


def test_a_lock_waits_no_longer_than_it_may(client: redis.Redis) -> None:
    assert client.lock("l", timeout=30).acquire()
    begin = time.monotonic()
    assert client.lock("l").acquire(blocking_timeout=0.3) is False
    assert time.monotonic() - begin < 5


def test_contended_sections_never_overlap(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    threads, rounds = 4, 10
    inside: list[int] = []
    most: list[int] = []

    def work(index: int) -> None:
        with endpoint.client(**wire) as client:
            for _ in range(rounds):
                with client.lock("l", timeout=30, sleep=0.002):
                    inside.append(index)
                    most.append(len(inside))
                    time.sleep(0.001)
                    inside.remove(index)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(TIMEOUT_S)
    assert most == [1] * threads * rounds
