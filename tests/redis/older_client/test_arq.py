"""arq with real workers: results, delays, retries, cron, and its own program.

arq polls a sorted set and takes a job by WATCH and MULTI, on redis-py 5.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from arq import ArqRedis, Worker, create_pool, cron
from arq.connections import RedisSettings
from arq.jobs import JobStatus

from tests.redis.workers import TIMEOUT_S, Bench, wait_for

Main = Callable[[ArqRedis], Awaitable[None]]
Work = Callable[..., Awaitable[Worker]]


@pytest.fixture
def jobs(bench: Bench) -> Any:
    """The functions that are sent and run."""
    return bench.jobs("arq_jobs")


@pytest.fixture
def run(bench: Bench) -> Callable[[Main], None]:
    """Runs a coroutine function with a pool of arq."""

    def run(main: Main) -> None:
        async def whole() -> None:
            pool = await create_pool(RedisSettings.from_dsn(bench.server.url))
            try:
                await asyncio.wait_for(main(pool), TIMEOUT_S)
            finally:
                await pool.aclose()

        asyncio.run(whole())

    return run


@pytest.fixture
def work(bench: Bench, jobs: Any) -> Work:
    """A worker in the test's loop; in a burst it leaves when nothing is due any more."""

    async def work(burst: bool = True, **options: Any) -> Worker:
        worker = Worker(
            functions=jobs.Settings.functions,
            redis_settings=RedisSettings.from_dsn(bench.server.url),
            burst=burst,
            poll_delay=0.05,
            handle_signals=False,
            **options,
        )
        try:
            await worker.main()
        finally:
            await worker.close()
        return worker

    return work


def test_results_and_failures(bench: Bench, run: Callable[[Main], None], work: Work) -> None:
    async def main(pool: ArqRedis) -> None:
        jobs = [await pool.enqueue_job("add", number, 1) for number in range(10)]
        failing = await pool.enqueue_job("fail")
        assert await jobs[0].status() is JobStatus.queued
        assert len(await pool.queued_jobs()) == 11
        worker = await work()
        assert (worker.jobs_complete, worker.jobs_failed, worker.jobs_retried) == (10, 1, 0)
        assert [await job.result(timeout=TIMEOUT_S) for job in jobs] == list(range(1, 11))
        assert await jobs[0].status() is JobStatus.complete
        with pytest.raises(ValueError, match="this job fails"):
            await failing.result(timeout=TIMEOUT_S)
        assert len(await pool.all_job_results()) == 11
        assert await pool.queued_jobs() == []

    run(main)
    assert len(bench.names()) == 11


def test_delayed_jobs_are_not_early(bench: Bench, run: Callable[[Main], None], work: Work) -> None:
    async def main(pool: ArqRedis) -> None:
        begin = time.time_ns() // 1_000_000
        last = await pool.enqueue_job("add", 2, 0, _defer_by=1.6)
        first = await pool.enqueue_job("add", 1, 0, _defer_by=0.8)
        much_later = await pool.enqueue_job("add", 3, 0, _defer_by=600)
        assert await much_later.status() is JobStatus.deferred
        # One at a time, in their order, even when both are due at the first look.
        working = asyncio.create_task(work(burst=False, max_jobs=1))
        assert await first.result(timeout=TIMEOUT_S, poll_delay=0.05) == 1
        assert await last.result(timeout=TIMEOUT_S, poll_delay=0.05) == 2
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        (one, one_ms), (two, two_ms) = bench.ran()
        assert (one, two) == ("add:1+0", "add:2+0")
        assert one_ms - begin >= 800
        assert two_ms - begin >= 1600

    run(main)


def test_retries_wait_and_a_key_is_taken_once(
    bench: Bench, run: Callable[[Main], None], work: Work
) -> None:
    async def main(pool: ArqRedis) -> None:
        job = await pool.enqueue_job("fail_once", _job_id="once")
        assert await pool.enqueue_job("fail_once", _job_id="once") is None
        worker = await work()
        assert worker.jobs_retried == 1
        assert await job.result(timeout=TIMEOUT_S) == "second try"

    run(main)
    (_, first), (_, second) = bench.ran()
    assert second - first >= 1000


def test_workers_side_by_side_run_each_job_once(
    bench: Bench, run: Callable[[Main], None], work: Work
) -> None:
    count = 40

    async def main(pool: ArqRedis) -> None:
        for number in range(count):
            await pool.enqueue_job("add", number, 0)
        await asyncio.gather(*[work() for _ in range(3)])
        assert len(await pool.all_job_results()) == count

    run(main)
    assert sorted(bench.names()) == sorted(f"add:{number}+0" for number in range(count))


def test_cron(bench: Bench, jobs: Any, run: Callable[[Main], None], work: Work) -> None:
    """Each second, and by one of two workers. A second is known by the name that arq gives its
    job, which ends in its milliseconds: when it runs may be in the next one.
    """

    async def main(pool: ArqRedis) -> None:
        def working() -> Awaitable[Worker]:
            return work(burst=False, cron_jobs=[cron(jobs.tick, second=set(range(60)))])

        workers = [asyncio.ensure_future(working()) for _ in range(2)]
        await asyncio.to_thread(wait_for, lambda: len(bench.names()) >= 2, "two ticks")
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    run(main)
    assert len(bench.names()) == len(set(bench.names())) >= 2
    for name, at_ms in bench.ran():
        assert at_ms >= int(name.rpartition(":")[2])


def test_the_program(bench: Bench, run: Callable[[Main], None]) -> None:
    """`arq arq_jobs.Settings` as a process, which logs INFO of the server when it starts."""

    async def main(pool: ArqRedis) -> None:
        job = await pool.enqueue_job("add", 20, 3)
        assert await job.result(timeout=TIMEOUT_S - 1, poll_delay=0.05) == 23

    with bench.worker("arq", "arq_jobs.Settings"):
        run(main)
    text = bench.log()
    assert "redis_version=" in text
    assert "shutdown on SIGTERM" in text
