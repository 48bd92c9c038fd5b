"""BullMQ with a real worker of Node: its scripts keep lists, sorted sets, hashes and a stream."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.redis.workers import OTHER_LANGUAGES, Bench, wait_for

FETCH = OTHER_LANGUAGES.parent / "get_bullmq.sh"
CHECKS = str(OTHER_LANGUAGES / "bullmq_checks.cjs")
JOBS = str(OTHER_LANGUAGES / "bullmq_jobs.cjs")


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Node finds BullMQ."""
    found = subprocess.run([FETCH], stdout=subprocess.PIPE, text=True, check=True)
    monkeypatch.setenv("NODE_PATH", found.stdout.strip())


def worker(bench: Bench) -> AbstractContextManager[Any]:
    return bench.worker("node", JOBS)


def names(bench: Bench) -> list[str]:
    """What ran, without the starts of workers."""
    return [name for name in bench.names() if name != "ready"]


def test_priorities(bench: Bench) -> None:
    bench.run("node", CHECKS, "priorities")
    with worker(bench):
        wait_for(lambda: len(names(bench)) == 3, "all jobs")
    assert names(bench) == ["add:1+0", "add:5+0", "add:9+0"]


def test_results_and_failures(bench: Bench) -> None:
    with worker(bench):
        bench.run("node", CHECKS, "results")
    assert names(bench) == ["add:1+1", "add:2+1", "add:3+1", "fail"]


def test_delayed_jobs_are_not_early_and_an_id_is_taken_once(bench: Bench) -> None:
    with worker(bench):
        begin = bench.at_ms("ready")
        bench.run("node", CHECKS, "delays")
    assert names(bench) == ["add:1+0", "add:2+0"]
    assert bench.at_ms("add:1+0") - begin >= 1000
    assert bench.at_ms("add:2+0") - begin >= 2000


def test_a_retry_later(bench: Bench) -> None:
    with worker(bench):
        bench.run("node", CHECKS, "retries")
    first, second = [at_ms for name, at_ms in bench.ran() if name == "failOnce"]
    assert second - first >= 1000


def test_a_flow_and_a_scheduler(bench: Bench) -> None:
    with worker(bench):
        bench.run("node", CHECKS, "flows")
        assert names(bench)[-1] == "sum"
        bench.run("node", CHECKS, "schedulers")


def test_the_job_of_a_killed_worker_runs_again(bench: Bench) -> None:
    bench.run("node", CHECKS, "stalled")
    with worker(bench) as first:
        bench.at_ms("slow")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    with worker(bench):
        bench.run("node", CHECKS, "stalledResult")
    assert names(bench) == ["slow", "slow"]
