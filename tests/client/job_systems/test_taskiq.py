"""taskiq with real workers on the delay log."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from taskiq import SendTaskError

from delaylog.client import Client
from tests.client.job_systems.conftest import TIMEOUT_S, Bench
from tests.waiting import await_that

MakeApp = Callable[[str], tuple[Any, Bench]]
QUEUE = "taskiq"
AHEAD_S = 3_600


@pytest.fixture
def app(make_app: MakeApp) -> Iterator[tuple[Any, Bench]]:
    """The module of tasks, whose broker is closed when the test is done, and its bench."""
    jobs, bench = make_app("taskiq_app")
    yield jobs, bench
    asyncio.run(jobs.broker.shutdown())


def worker(bench: Bench) -> AbstractContextManager[Any]:
    options = ("--workers", "1", "--max-async-tasks", "1", "--max-prefetch", "1")
    return bench.worker("taskiq", "worker", "taskiq_app:broker", *options)


def send(*kicks: Any) -> list[str]:
    """The ids of tasks that were sent one after another."""

    async def main() -> list[str]:
        return [(await kick).task_id for kick in kicks]

    return asyncio.run(main())


def test_delays_and_retries_wait_in_the_broker(app: tuple[Any, Bench], client: Client) -> None:
    jobs, bench = app
    begin = time.time_ns() // 1_000_000
    _, _, _, far = send(
        jobs.run.kiq("now"),
        jobs.run.kicker().with_labels(delaylog_delay_s=1).kiq("later"),
        jobs.fail_once.kiq("tried"),
        jobs.run.kicker().with_labels(delaylog_delay_s=AHEAD_S).kiq("far"),
    )
    info = client.get(QUEUE, far)
    assert (info.state, info.tags) == ("waiting", ("taskiq_app:run",))
    with worker(bench):
        bench.wait("now", "later", "tried", "tried")
        assert bench.at_ms("later") - begin >= 1_000
        first, second = [at_ms for word, at_ms in bench.ran() if word == "tried"]
        assert second - first >= 1_000
        await_that(lambda: client.stats(QUEUE).counts.leased == 0)
    counts = client.stats(QUEUE).counts
    assert (counts.waiting, counts.ready) == (1, 0)


def test_the_highest_priority_runs_first_and_what_a_killed_worker_had_runs_again(
    app: tuple[Any, Bench], client: Client
) -> None:
    """Each task outlives its lease of 5 s, which the worker extends. A stop returns the rest."""
    jobs, bench = app
    send(
        jobs.slow.kicker().with_labels(delaylog_priority=1).kiq("low", 7),
        jobs.slow.kicker().with_labels(delaylog_priority=9).kiq("high", 7),
    )
    with worker(bench) as first:
        bench.at_ms("high:begin")
        os.killpg(first.pid, signal.SIGKILL)
    assert bench.names() == ["high:begin"]
    with worker(bench):
        bench.wait("high:begin", "high:begin", "high:end", "low:begin", "low:end")
        send(jobs.slow.kiq("last", 3), *(jobs.run.kiq("rest") for _ in range(3)))
        bench.at_ms("last:begin")
    counts = client.stats(QUEUE).counts
    assert (counts.leased, counts.ready + counts.acked) == (0, 6)
    assert counts.ready >= 1


def test_labels_of_middleware_do_not_change_the_first_attempt(app: tuple[Any, Bench]) -> None:
    jobs, bench = app
    with worker(bench):
        send(jobs.run.kiq("begun"))
        begin = bench.at_ms("begun")
        send(jobs.fail_always.kiq("tried"))
        bench.wait("begun", "tried", "tried")
    first, second = [at_ms for word, at_ms in bench.ran() if word == "tried"]
    assert second - first >= 2_000 > first - begin


@pytest.mark.parametrize("task", ["too_far", "too_far_early"])
def test_a_task_whose_retry_is_refused_is_a_dead_letter_with_the_reason(
    app: tuple[Any, Bench], client: Client, task: str
) -> None:
    jobs, bench = app
    with worker(bench):
        send(getattr(jobs, task).kiq("tried"))
        await_that(lambda: list(client.dead(QUEUE)), bench.log, seconds=TIMEOUT_S)
    (letter,) = client.dead(QUEUE)
    assert letter.reason is not None
    assert letter.reason.startswith("its retry was refused")
    assert "horizon" in letter.reason
    assert bench.names() == ["tried"]


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("delaylog_delay_s", "soon"),
        ("delaylog_delay_s", "nan"),
        ("delaylog_priority", "high"),
        ("delaylog_priority", "2.5"),
    ],
)
def test_a_label_with_a_wrong_value_is_refused_by_name(
    app: tuple[Any, Bench], client: Client, label: str, value: str
) -> None:
    jobs, _ = app
    with pytest.raises(SendTaskError) as caught:
        send(jobs.run.kicker().with_labels(**{label: value}).kiq("never"))
    assert label in str(caught.value.__cause__)
    assert value in str(caught.value.__cause__)


def test_each_send_of_one_task_id_runs_and_all_are_cancelled_by_it(
    app: tuple[Any, Bench], client: Client
) -> None:
    jobs, bench = app
    send(*(jobs.run.kicker().with_task_id("17").kiq(word) for word in ("one", "two", "three")))
    with worker(bench):
        bench.wait("one", "two", "three")
    later = jobs.run.kicker().with_labels(delaylog_delay_s=AHEAD_S).with_task_id("18")
    send(later.kiq("never"), later.kiq("never"))
    assert asyncio.run(jobs.broker.cancel("18")).result == "done"
    assert client.stats(QUEUE).counts.waiting == 0


def test_schedules_send_to_the_broker(app: tuple[Any, Bench], client: Client) -> None:
    """Another queue has workers of its own: only those whose broker has that `queue_name`."""
    jobs, bench = app
    (other,) = send(jobs.run.kicker().with_labels(queue_name="other").kiq("other"))
    with bench.worker("taskiq", "scheduler", "taskiq_app:scheduler"):
        await_that(lambda: client.stats(QUEUE).counts.ready >= 2, bench.log, seconds=TIMEOUT_S)
    with worker(bench):
        bench.at_ms("tick")
    assert client.get("other", other).state == "ready"


def test_without_a_result_backend_there_is_an_empty_result(app: tuple[Any, Bench]) -> None:
    jobs, _ = app

    async def main() -> Any:
        sent = await jobs.run.kiq("never")
        return await sent.wait_result(timeout=TIMEOUT_S)

    with pytest.warns(UserWarning, match="No result backend"):
        assert asyncio.run(main()).return_value is None


def test_a_broker_that_is_away_is_asked_again(app: tuple[Any, Bench], broker: Any) -> None:
    jobs, bench = app
    send(jobs.run.kiq("before"))
    with worker(bench):
        bench.at_ms("before")
        broker.crash()
        time.sleep(2)
        broker.start()
        send(jobs.run.kiq("after"))
        bench.at_ms("after")
