"""python-redis-lock: who waits is woken by BLPOP on a list of signals."""

from __future__ import annotations

import threading
import time

import pytest
import redis_lock

from tests.redis.servers import TIMEOUT_S, RedisServer


def test_contended_sections_never_overlap(endpoint: RedisServer) -> None:
    threads, rounds = 4, 20
    inside: list[int] = []
    most: list[int] = []

    def work(index: int) -> None:
        with endpoint.client() as client:
            for _ in range(rounds):
                with redis_lock.Lock(client, "l", expire=30):
                    inside.append(index)
                    most.append(len(inside))
                    inside.remove(index)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(TIMEOUT_S)
    assert most == [1] * threads * rounds


def test_a_waiter_is_woken_by_the_release(endpoint: RedisServer) -> None:
    with endpoint.client() as client, endpoint.client() as other:
        held = redis_lock.Lock(client, "l", expire=30, id="me")
        assert held.acquire()
        assert held.get_owner_id() == "me"
        waiter = redis_lock.Lock(other, "l")
        assert waiter.acquire(timeout=1) is False
        begin = time.monotonic()
        timer = threading.Timer(0.3, held.release)
        timer.start()
        assert waiter.acquire(timeout=20) is True
        assert 0.3 <= time.monotonic() - begin < 10
        # It may load the script again after the waiter was woken.
        timer.join()
        waiter.release()
        with pytest.raises(redis_lock.NotAcquired):
            waiter.release()


def test_a_lock_that_is_kept_alive(endpoint: RedisServer) -> None:
    with endpoint.client() as client:
        kept = redis_lock.Lock(client, "kept", expire=6, auto_renewal=True)
        # Its thread would leave itself the last third of the time, which may be too little.
        kept._lock_renewal_interval = 1.0
        assert kept.acquire()
        time.sleep(6.5)
        assert kept.locked()
        kept.release()
        assert not kept.locked()


def test_all_locks_reset(endpoint: RedisServer) -> None:
    with endpoint.client() as client:
        held = [redis_lock.Lock(client, name, expire=30) for name in ("a", "b")]
        assert all(lock.acquire() for lock in held)
        redis_lock.reset_all(client)
        assert not any(lock.locked() for lock in held)
        with pytest.raises(redis_lock.NotAcquired):
            held[0].release()
