"""taskiq with real workers: on a list, on a stream with a group, and its scheduler."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.redis.workers import TIMEOUT_S, Bench


@pytest.mark.parametrize(
    ("broker", "task", "word"),
    [("listed", "add", "listed:"), ("streamed", "add_streamed", "streamed:")],
)
def test_results(bench: Bench, broker: str, task: str, word: str) -> None:
    jobs: Any = bench.jobs("taskiq_jobs")

    async def main() -> None:
        sender = getattr(jobs, broker)
        await sender.startup()
        sent = [await getattr(jobs, task).kiq(number, 1) for number in range(5)]
        got = [await one.wait_result(timeout=TIMEOUT_S) for one in sent]
        assert [answer.return_value for answer in got] == [1, 2, 3, 4, 5]
        await sender.shutdown()

    with bench.worker("taskiq", "worker", f"taskiq_jobs:{broker}", "--workers", "1"):
        asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    assert sorted(bench.names()) == [f"{word}{number}+1" for number in range(5)]


def test_scheduled_tasks_are_not_early(bench: Bench) -> None:
    """The source keeps a list a minute, and each look of the scheduler takes those of this minute
    and of earlier ones. By itself it looks once a minute; here each second, so that it matters
    neither when it starts nor whether a minute ends meanwhile.
    """
    jobs: Any = bench.jobs("taskiq_jobs")
    moments: list[datetime] = []

    async def schedule(seconds: int, number: int) -> None:
        moments.append(datetime.now(UTC) + timedelta(seconds=seconds))
        await jobs.add_streamed.schedule_by_time(jobs.source, moments[-1], number, 1)
        await asyncio.to_thread(bench.at_ms, f"streamed:{number}+1")

    async def main() -> None:
        await jobs.source.startup()
        # Once this ran, worker and scheduler are there and would have the next one too early.
        await schedule(0, 1)
        await schedule(2, 2)
        await jobs.source.shutdown()

    scheduler = ("scheduler", "taskiq_jobs:scheduler", "--update-interval", "1")
    with (
        bench.worker("taskiq", "worker", "taskiq_jobs:streamed", "--workers", "1"),
        bench.worker("taskiq", *scheduler),
    ):
        asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    # Its scheduler knows whole seconds.
    for number, moment in enumerate(moments, 1):
        assert bench.at_ms(f"streamed:{number}+1") >= int(moment.timestamp()) * 1000
