"""SAQ with a real worker: asyncio, BLMOVE, and results told by pub/sub."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from saq import Queue

from tests.redis.workers import TIMEOUT_S, Bench, wait_for


@contextmanager
def worker(bench: Bench) -> Iterator[None]:
    """As documented: saq MODULE.SETTINGS.

    When it starts it sweeps away what is popped and not yet marked as running, be it by itself. So
    nothing is sent before that sweep has left its mark.
    """
    with bench.worker("saq", "saq_jobs.settings"), bench.server.client() as client:
        wait_for(lambda: client.keys("saq:*:sweep"), "the sweep")
        yield


def test_results_and_retries(bench: Bench) -> None:
    async def main() -> None:
        queue = Queue.from_url(bench.server.url)
        await queue.connect()
        assert await queue.apply("add", a=1, b=2, timeout=TIMEOUT_S) == 3
        sums = await queue.map("add", [{"a": number, "b": 0} for number in range(10)])
        assert sums == list(range(10))
        assert await queue.apply("fail_once", retries=3, timeout=TIMEOUT_S) == "second try"
        assert await queue.count("incomplete") == 0
        await queue.disconnect()

    with worker(bench):
        asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    assert bench.names().count("fail_once") == 2


def test_jobs_for_later_are_not_early_and_a_key_is_taken_once(bench: Bench) -> None:
    async def main() -> None:
        queue = Queue.from_url(bench.server.url)
        await queue.connect()
        far = int(time.time()) + 600
        assert await queue.enqueue("add", a=9, b=9, scheduled=far, key="once") is not None
        assert await queue.enqueue("add", a=9, b=9, scheduled=far, key="once") is None
        moment = int(time.time()) + 2
        job = await queue.enqueue("add", a=1, b=1, scheduled=moment)
        assert job is not None
        await job.refresh(until_complete=TIMEOUT_S)
        assert job.result == 2
        assert bench.at_ms("add:1+1") >= moment * 1000
        await queue.disconnect()

    with worker(bench):
        asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    assert bench.names() == ["add:1+1"]
