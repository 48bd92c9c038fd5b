"""Celery with a real worker: kombu's queues, its sorted set of unacknowledged ones, and pub/sub."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager
from typing import Any

import pytest

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


def test_beat_sends_tasks_again_and_again(bench: Bench) -> None:
    jobs = bench.jobs("celery_jobs")
    with worker(bench), bench.worker("celery", "-A", "celery_jobs", "beat"):
        wait_for(lambda: bench.names().count("add:7+7") >= 2, "the second tick")
    assert set(bench.names()) == {"add:7+7"}
    jobs.app.close()


def test_the_lowest_priority_runs_first(bench: Bench) -> None:
    """Redis has a list for each of the priorities 0, 3, 6 and 9; what is prefetched goes first."""
    jobs = bench.jobs("celery_jobs")
    for priority in (9, 0, 6, 3):
        jobs.add.apply_async((priority, 0), priority=priority)
    options = ("--concurrency", "1", "--prefetch-multiplier", "1")
    with worker(bench, *options):
        wait_for(lambda: len(bench.names()) == 4, "all tasks")
    assert bench.names() == ["add:0+0", "add:3+0", "add:6+0", "add:9+0"]
    jobs.app.close()


def test_workers_side_by_side_run_each_task_once(bench: Bench) -> None:
    jobs, count = bench.jobs("celery_jobs"), 20
    with worker(bench, "--hostname", "one@%h"), worker(bench, "--hostname", "two@%h"):
        sent = [jobs.add.delay(number, 0) for number in range(count)]
        assert [each.get(timeout=TIMEOUT_S) for each in sent] == list(range(count))
    assert sorted(bench.names()) == sorted(f"add:{number}+0" for number in range(count))
    jobs.app.close()


def test_the_task_of_a_killed_worker_runs_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `acks_late`, once `visibility_timeout` is over."""
    monkeypatch.setenv("VISIBILITY_TIMEOUT_S", "3")
    jobs = bench.jobs("celery_jobs")
    sent = jobs.slow.delay(1)
    with worker(bench) as first:
        bench.at_ms("slow")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    with worker(bench):
        assert sent.get(timeout=TIMEOUT_S) == "whole"
    assert bench.names() == ["slow", "slow"]
    jobs.app.close()


def test_tasks_with_an_eta_wait_in_a_worker_and_a_limit_of_them_holds_others_back(
    bench: Bench,
) -> None:
    """What docs/JOB_SYSTEMS.md says of Celery on Redis."""
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
