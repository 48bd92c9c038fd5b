"""streaQ with a real worker: streams with groups, and its scripts as functions of the server."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

from streaq import TaskStatus

from tests.redis.workers import TIMEOUT_S, Bench, now_ms


def worker(bench: Bench) -> AbstractContextManager[Any]:
    """As documented: streaq run MODULE:WORKER."""
    return bench.worker("streaq", "run", "streaq_jobs:worker")


def test_results_delays_and_retries(bench: Bench) -> None:
    jobs = bench.jobs("streaq_jobs")

    async def main() -> None:
        async with jobs.worker:
            assert (await (await jobs.add.enqueue(1, 2)).result(TIMEOUT_S)).result == 3
            begin = now_ms()
            later = await jobs.add.enqueue(3, 4).start(delay=1)
            much_later = await jobs.add.enqueue(5, 6).start(delay=600)
            assert await much_later.status() is TaskStatus.SCHEDULED
            retried = await jobs.fail_once.enqueue()
            assert (await later.result(TIMEOUT_S)).result == 7
            assert bench.at_ms("add:3+4") - begin >= 1000
            assert (await retried.result(TIMEOUT_S)).result == "second try"

    with worker(bench):
        asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    first, second = [at_ms for name, at_ms in bench.ran() if name == "fail_once"]
    assert second - first >= 1000
