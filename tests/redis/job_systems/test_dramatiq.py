"""Dramatiq with a real worker: one large script does all its queueing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.redis.workers import TIMEOUT_S, Bench, now_ms, wait_for


def worker(bench: Bench) -> AbstractContextManager[Any]:
    """One process with two threads."""
    return bench.worker("dramatiq", "dramatiq_jobs", "--processes", "1", "--threads", "2")


def test_results(bench: Bench) -> None:
    jobs = bench.jobs("dramatiq_jobs")
    messages = [jobs.add.send(number, 1) for number in range(10)]
    with worker(bench):
        results = [message.get_result(block=True, timeout=TIMEOUT_S * 1000) for message in messages]
    assert results == list(range(1, 11))
    assert len(bench.names()) == 10


def test_delays_and_retries_are_not_early(bench: Bench) -> None:
    jobs = bench.jobs("dramatiq_jobs")
    begin = now_ms()
    later = jobs.add.send_with_options(args=(1, 1), delay=1000)
    retried = jobs.fail_once.send()
    with worker(bench):
        assert later.get_result(block=True, timeout=TIMEOUT_S * 1000) == 2
        assert bench.at_ms("add:1+1") - begin >= 1000
        bench.at_ms("fail_once")
        jobs.broker.join("default", timeout=TIMEOUT_S * 1000)
        assert retried.get_result(block=True, timeout=TIMEOUT_S * 1000) == "second try"


def test_a_delayed_message_waits_in_a_worker(bench: Bench) -> None:
    """What docs/job-systems/redis-endpoint.md says of it. A worker that stops gives it back."""
    jobs = bench.jobs("dramatiq_jobs")
    jobs.add.send_with_options(args=(1, 1), delay=600_000)
    with bench.server.client() as client:
        assert client.llen("dramatiq:default.DQ") == 1
        with worker(bench):
            wait_for(lambda: client.llen("dramatiq:default.DQ") == 0, "its fetch")
        assert client.llen("dramatiq:default.DQ") == 1
    assert bench.names() == []
