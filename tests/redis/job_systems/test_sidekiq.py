"""Sidekiq with a real worker of Ruby: lists, and sorted sets of scheduled, failed and dead jobs."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.redis.workers import OTHER_LANGUAGES, Bench, now_ms, wait_for

FETCH = OTHER_LANGUAGES.parent / "get_sidekiq.sh"
CHECKS = str(OTHER_LANGUAGES / "sidekiq_checks.rb")
JOBS = str(OTHER_LANGUAGES / "sidekiq_jobs.rb")


@pytest.fixture(autouse=True, scope="module")
def _sidekiq() -> None:
    subprocess.run([FETCH], check=True)


def worker(bench: Bench) -> AbstractContextManager[Any]:
    """One process with one thread."""
    return bench.worker("sidekiq", "--require", JOBS, "--concurrency", "1")


def test_jobs_run_in_order(bench: Bench) -> None:
    bench.run("ruby", CHECKS, "results")
    with worker(bench):
        wait_for(lambda: len(bench.names()) == 3, "all jobs")
    assert bench.names() == ["add:1+0", "add:2+0", "add:3+0"]


def test_scheduled_jobs_are_not_early(bench: Bench) -> None:
    begin = now_ms()
    with worker(bench):
        bench.run("ruby", CHECKS, "delays")
        assert bench.at_ms("add:1+0") - begin >= 1000
        assert bench.at_ms("add:2+0") - begin >= 2000
    assert bench.names() == ["add:1+0", "add:2+0"]


def test_a_retry_later(bench: Bench, tmp_path: Path) -> None:
    with worker(bench):
        bench.run("ruby", CHECKS, "retries", str(tmp_path / "tried"))
        wait_for(lambda: len(bench.names()) == 2, "the second try")
    (_, first), (_, second) = bench.ran()
    assert second - first >= 1000


def test_a_dead_job_can_be_found(bench: Bench) -> None:
    with worker(bench):
        bench.run("ruby", CHECKS, "dead")
    assert bench.names() == ["fail"]


def test_the_job_of_a_killed_worker_is_lost(bench: Bench) -> None:
    """What docs/job-systems/redis-endpoint.md says of Sidekiq without Pro."""
    bench.run("ruby", CHECKS, "slow")
    with worker(bench) as first:
        bench.at_ms("slow")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    with worker(bench):
        bench.run("ruby", CHECKS, "behind")
        bench.at_ms("add:1+0")
    assert bench.names() == ["slow", "add:1+0"]
