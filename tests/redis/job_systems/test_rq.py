"""rq with real workers: forked jobs, failures, its registries, and jobs for later."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from rq import Queue, Retry, SimpleWorker
from rq.job import Dependency, Job

from tests.redis.workers import Bench, now_ms, wait_for


@pytest.fixture
def connection(bench: Bench) -> redis.Redis:
    """rq wants bytes."""
    return bench.server.client()


def burst(bench: Bench, *options: str) -> str:
    """`rq worker --burst`: a real worker, which forks for each job and leaves when all is done."""
    return bench.run("rq", "worker", "--burst", "--url", bench.server.url, *options)


def test_jobs_run_in_order_and_keep_their_results(bench: Bench, connection: redis.Redis) -> None:
    queue = Queue(connection=connection)
    jobs = [queue.enqueue("rq_jobs.add", number, 1) for number in range(3)]
    assert queue.job_ids == [job.id for job in jobs]
    burst(bench)
    assert bench.names() == ["add:0+1", "add:1+1", "add:2+1"]
    assert [job.return_value() for job in jobs] == [1, 2, 3]
    assert {str(job.get_status().value) for job in jobs} == {"finished"}
    assert sorted(queue.finished_job_registry.get_job_ids()) == sorted(job.id for job in jobs)
    assert queue.count == 0
    assert queue.started_job_registry.count == 0


def test_a_failed_job_can_be_found_and_requeued(bench: Bench, connection: redis.Redis) -> None:
    queue = Queue(connection=connection)
    job = queue.enqueue("rq_jobs.fail")
    burst(bench)
    assert job.get_status().value == "failed"
    assert queue.failed_job_registry.get_job_ids() == [job.id]
    result = job.latest_result()
    assert result is not None
    assert "ValueError: this job fails" in str(result.exc_string)
    queue.failed_job_registry.requeue(job.id)
    assert queue.job_ids == [job.id]
    burst(bench)
    assert bench.names() == ["fail", "fail"]


def test_a_retry_later(bench: Bench, connection: redis.Redis, tmp_path: Path) -> None:
    queue = Queue(connection=connection)
    job = queue.enqueue(
        "rq_jobs.fail_once", str(tmp_path / "tried"), retry=Retry(max=2, interval=1)
    )
    with bench.worker("rq", "worker", "--with-scheduler", "--url", bench.server.url):
        wait_for(job.return_value)
    assert job.return_value() == "second try"
    (_, first), (_, second) = bench.ran()
    # rq keeps whole seconds of Unix time, and drops the rest.
    assert second >= first // 1000 * 1000 + 1000


def test_jobs_for_later_are_not_early(bench: Bench, connection: redis.Redis) -> None:
    queue = Queue(connection=connection)
    begin = now_ms()
    queue.enqueue_in(timedelta(seconds=3), "rq_jobs.add", 3, 0)
    queue.enqueue_in(timedelta(seconds=1), "rq_jobs.add", 1, 0)
    cancelled = queue.enqueue_in(timedelta(seconds=2), "rq_jobs.add", 2, 0)
    assert queue.scheduled_job_registry.count == 3
    cancelled.cancel()
    assert queue.scheduled_job_registry.count == 2
    with bench.worker("rq", "worker", "--with-scheduler", "--url", bench.server.url):
        assert bench.at_ms("add:1+0") >= begin // 1000 * 1000 + 1000
        assert bench.at_ms("add:3+0") >= begin // 1000 * 1000 + 3000
    assert bench.names() == ["add:1+0", "add:3+0"]
    assert queue.scheduled_job_registry.count == 0


def test_the_order_of_queues_and_of_what_depends(bench: Bench, connection: redis.Redis) -> None:
    low, high = (Queue(name, connection=connection) for name in ("low", "high"))
    low.enqueue("rq_jobs.add", 1, 1)
    first = high.enqueue("rq_jobs.add", 2, 2)
    then = high.enqueue("rq_jobs.add", 3, 3, depends_on=Dependency(jobs=[first]))
    high.enqueue("rq_jobs.add", 4, 4, at_front=True)
    assert high.deferred_job_registry.get_job_ids() == [then.id]
    burst(bench, "high", "low")
    assert bench.names() == ["add:4+4", "add:2+2", "add:3+3", "add:1+1"]


def test_a_worker_in_this_process(
    bench: Bench, connection: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """SimpleWorker does not fork; it is seen by name while it works and gone when it is done."""
    queue = Queue(connection=connection)
    job = queue.enqueue("rq_jobs.add", 2, 3)
    worker = SimpleWorker([queue], connection=connection, name="simple")
    with caplog.at_level(logging.ERROR):
        assert worker.work(burst=True) is True
    assert not caplog.records
    assert Job.fetch(job.id, connection=connection).return_value() == 5
    assert SimpleWorker.count(connection=connection) == 0


def test_workers_side_by_side_run_each_job_once(bench: Bench, connection: redis.Redis) -> None:
    queue = Queue(connection=connection)
    count = 20
    arguments = ("worker", "--worker-class", "rq.SimpleWorker", "--url", bench.server.url)
    with bench.worker("rq", *arguments), bench.worker("rq", *arguments):
        queue.enqueue_many(
            [Queue.prepare_data("rq_jobs.add", (number, 0)) for number in range(count)]
        )
        wait_for(lambda: len(bench.names()) >= count, "all jobs")
        wait_for(lambda: queue.finished_job_registry.count == count, "all results")
    assert sorted(bench.names()) == sorted(f"add:{number}+0" for number in range(count))


def test_what_rq_tells_of_itself(bench: Bench, connection: redis.Redis) -> None:
    queue = Queue("jobs", connection=connection)
    queue.enqueue("rq_jobs.add", 1, 1)
    with bench.worker("rq", "worker", "jobs", "--name", "watched", "--url", bench.server.url):
        wait_for(lambda: connection.sismember("rq:workers", "rq:worker:watched"), "the worker")
        wait_for(
            lambda: any(line["name"] == "watched" for line in connection.client_list()), "its name"
        )
        wait_for(lambda: queue.finished_job_registry.count == 1, "the job")
        out = bench.run("rq", "info", "--url", bench.server.url)
    assert "1 workers" in out
    assert "1 finished" in out
