"""Celery with a real worker: kombu's queues, its sorted set of unacknowledged ones, and pub/sub."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.redis.workers import TIMEOUT_S, Bench, now_ms, wait_for


def worker(bench: Bench, *more: str) -> AbstractContextManager[Any]:
    """One process with threads: a fork for each would only cost time."""
    options = ("--pool", "threads", "--concurrency", "2", "--loglevel", "WARNING", *more)
    return bench.worker("celery", "-A", "celery_jobs", "worker", *options)


def test_results_groups_and_chords(bench: Bench) -> None:
    jobs = bench.jobs("celery_jobs")
    from celery import chord, group

    with worker(bench):
        assert jobs.add.delay(2, 3).get(timeout=TIMEOUT_S) == 5
        many = group(jobs.add.s(number, 0) for number in range(10))()
        assert many.get(timeout=TIMEOUT_S) == list(range(10))
        whole = chord(jobs.add.s(number, 1) for number in range(3))(jobs.total.s())
        assert whole.get(timeout=TIMEOUT_S) == 6
    assert len(bench.names()) == 14
    jobs.app.close()


def test_countdown_and_retry_are_not_early(bench: Bench) -> None:
    jobs = bench.jobs("celery_jobs")
    with worker(bench):
        begin = now_ms()
        later = jobs.add.apply_async((1, 1), countdown=1)
        retried = jobs.fail_once.delay()
        assert later.get(timeout=TIMEOUT_S) == 2
        assert bench.at_ms("add:1+1") - begin >= 1000
        assert retried.get(timeout=TIMEOUT_S) == "second try"
    first, second = [at_ms for name, at_ms in bench.ran() if name == "fail_once"]
    assert second - first >= 1000
    jobs.app.close()


def test_tasks_with_an_eta_wait_in_a_worker_and_a_limit_of_them_holds_others_back(
    bench: Bench,
) -> None:
    """What docs/job-systems/ten-million-etas.md says of Celery on Redis."""
    jobs = bench.jobs("celery_jobs")
    begin, count = now_ms(), 20
    for number in range(count):
        jobs.add.apply_async((number, 1), countdown=15)
    jobs.add.delay(0, 0)
    with bench.server.client() as client:
        with worker(bench):
            wait_for(lambda: client.hlen("unacked") == count, "all tasks")
            bench.at_ms("add:0+0")
        assert (client.hlen("unacked"), client.llen("celery")) == (0, count)
    jobs.add.delay(9, 9)
    with worker(bench, "--", "worker.eta_task_limit=4"):
        assert bench.at_ms("add:9+9") - begin >= 15_000
    jobs.app.close()
