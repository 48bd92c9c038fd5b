"""huey with its real consumer: results, schedules, retries, and priorities."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from huey.exceptions import TaskException

from tests.redis.workers import TIMEOUT_S, Bench, now_ms, wait_for


def consumer(bench: Bench, name: str = "huey", workers: int = 2) -> AbstractContextManager[Any]:
    """SIGINT is how it ends in peace: running tasks are finished first."""
    return bench.worker(
        "huey_consumer",
        f"huey_jobs.{name}",
        *("--workers", str(workers), "--no-periodic", "--delay", "0.05"),
        end_by=signal.SIGINT,
    )


def last_result(result: Any) -> Any:
    """A failed try leaves its error as the result; the next replaces it."""
    result.reset()
    try:
        return result.get(preserve=True)
    except TaskException:
        return None


def test_results(bench: Bench) -> None:
    jobs = bench.jobs("huey_jobs")
    early = jobs.add(1, 2)
    assert early.get() is None
    assert jobs.huey.pending_count() == 1
    with consumer(bench):
        assert early.get(blocking=True, timeout=TIMEOUT_S) == 3
        assert jobs.add(3, 4).get(blocking=True, timeout=TIMEOUT_S) == 7
        many = jobs.add.map([(number, 0) for number in range(20)])
        assert many.get(blocking=True, timeout=TIMEOUT_S) == list(range(20))
        with pytest.raises(TaskException, match="this task fails"):
            jobs.fail().get(blocking=True, timeout=TIMEOUT_S)
    assert len(bench.names()) == 22
    assert jobs.huey.pending_count() == 0


def test_tasks_for_later_are_not_early(bench: Bench) -> None:
    jobs = bench.jobs("huey_jobs")
    begin = now_ms()
    later = jobs.add.schedule((1, 0), delay=1)
    last = jobs.add.schedule((2, 0), delay=2)
    revoked = jobs.add.schedule((9, 0), delay=1)
    revoked.revoke()
    # Two workers might swap them when the consumer starts so late that both are due.
    with consumer(bench, workers=1):
        assert later.get(blocking=True, timeout=TIMEOUT_S) == 1
        assert last.get(blocking=True, timeout=TIMEOUT_S) == 2
    assert bench.names() == ["add:1+0", "add:2+0"]
    assert bench.at_ms("add:1+0") - begin >= 1000
    assert bench.at_ms("add:2+0") - begin >= 2000
    assert jobs.huey.scheduled_count() == 0


def test_retries(bench: Bench, tmp_path: Path) -> None:
    jobs = bench.jobs("huey_jobs")
    result = jobs.fail_once(str(tmp_path / "tried"))
    with consumer(bench):
        wait_for(lambda: last_result(result) == "second try", "the second try")
    (_, first), (_, second) = bench.ran()
    assert second - first >= 1000


def test_priorities(bench: Bench) -> None:
    jobs = bench.jobs("huey_jobs")
    for word, priority in (("low", 1), ("high", 9), ("middle", 5), ("none", None), ("high2", 9)):
        jobs.ranked.s(word, priority=priority)
        jobs.urgent.enqueue(jobs.ranked.s(word, priority=priority))
    with consumer(bench, "urgent", workers=1):
        bench.at_ms("none")
    assert bench.names() == ["high", "high2", "middle", "low", "none"]


def test_a_lock_of_huey(bench: Bench) -> None:
    jobs = bench.jobs("huey_jobs")
    with jobs.huey.lock_task("only-one"):
        assert jobs.huey.is_locked("only-one")
        lock = jobs.huey.lock_task("only-one")
        with pytest.raises(Exception, match="unable to acquire lock"), lock:
            pass
    assert not jobs.huey.is_locked("only-one")
