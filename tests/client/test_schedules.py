"""Schedules in the SDK: times and zones of the calls, and tasks that are called again and again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from delaylog.client import BadRequest
from delaylog.client.calls import schedules
from delaylog.client.calls.call import Places
from tests.client.any_queue import Queue, got, on_a_queue
from tests.client.test_tasks import of_kind, worked

PLACES = Places("default")


def said(call: Any) -> Any:
    """The members of a call."""
    return json.loads(call.body)


def test_times_and_durations() -> None:
    """timedelta and datetime, or numbers with their units."""
    at = datetime(2027, 1, 1, tzinfo=UTC)
    call = schedules.put_schedule(
        PLACES,
        "t",
        "s",
        b"x",
        interval=timedelta(seconds=1.5),
        start=at,
        jitter=timedelta(milliseconds=5),
        catch_up_window=timedelta(days=1),
        ttl=timedelta(hours=1),
        tags=("a",),
    )
    assert said(call) == {
        "body": "x",
        "interval_ms": 1_500,
        "start_ms": int(at.timestamp() * 1_000),
        "jitter_ms": 5,
        "catch_up_window_ms": 86_400_000,
        "ttl_ms": 3_600_000,
        "tags": ["a"],
    }
    assert said(
        schedules.update_schedule(PLACES, "t", "s", start=None, interval=timedelta(milliseconds=9))
    ) == {
        "start_ms": None,
        "interval_ms": 9,
    }


def test_zones_and_ranges() -> None:
    """A zone by its name or as zoneinfo has it; a range by datetimes or numbers."""
    zone = ZoneInfo("Asia/Tokyo")
    call = schedules.put_schedule(PLACES, "t", "s", "x", cron="0 9 * * *", zone=zone)
    assert said(call)["zone"] == "Asia/Tokyo"
    at = datetime(2027, 1, 1, tzinfo=zone)
    call = schedules.backfill_schedule(PLACES, "t", "s", from_=at, until_ms=2**41, rate=5)
    assert said(call) == {"from_ms": 1_798_729_200_000, "until_ms": 2**41, "rate": 5}
    with pytest.raises(TypeError, match="needs from_ or from_ms"):
        schedules.backfill_schedule(PLACES, "t", "s")
    with pytest.raises(ValueError, match="give until or until_ms"):
        schedules.backfill_schedule(PLACES, "t", "s", from_ms=0, until=at, until_ms=5)


@pytest.mark.parametrize(
    ("members", "error", "why"),
    [
        ({"interval": 5}, TypeError, "interval is a timedelta"),
        ({"interval_ms": 5}, TypeError, "no argument 'interval_ms': write interval=timedelta"),
        ({"start": datetime(2027, 1, 1)}, ValueError, "start has no time zone"),  # noqa: DTZ001
        ({"start": datetime(2027, 1, 1, tzinfo=UTC), "start_ms": 5}, ValueError, "start or"),
        ({"crown": "* * * * *"}, TypeError, "no argument 'crown'; it has .*cron, interval"),
    ],
)
def test_wrong_arguments(members: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        schedules.put_schedule(PLACES, "t", "s", "x", **members)
    with pytest.raises(TypeError, match="body is bytes or str, not NoneType"):
        schedules.update_schedule(PLACES, "t", "s", body=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="body is bytes or str, not int"):
        schedules.put_schedule(PLACES, "t", "s", 5, cron="* * * * *")  # type: ignore[arg-type]


@on_a_queue
async def test_a_task_is_called_again_and_again(queue: Queue) -> None:
    """The start of a worker declares the schedule; another start leaves it as it is."""
    called: list[int] = []

    def tick() -> None:
        called.append(1)

    made = queue.client.task(queue.topic, wait=timedelta(milliseconds=500), retries=4).every(
        timedelta(milliseconds=100), name="often"
    )(of_kind(queue, tick))
    assert made.__name__ == "tick"
    await worked(queue, lambda: len(called) >= 2)
    plain = queue.client.broker()
    first = await got(plain.schedule(queue.topic, "often"))
    assert (first["interval_ms"], first["max_retry"]) == (100, 4)
    assert json.loads(first["body"]) == {"task": "tick", "args": [], "kwargs": {}}
    count = len(called)
    await worked(queue, lambda: len(called) > count)
    again = await got(plain.schedule(queue.topic, "often"))
    assert again["start_ms"] == first["start_ms"]
    assert again["n"] > first["n"]


@on_a_queue
async def test_a_cron_expression_in_a_zone(queue: Queue) -> None:
    def digest() -> None:
        pass

    queue.client.task(queue.topic, wait=timedelta(milliseconds=500)).every(
        "0 9 * * 1-5", tz="Europe/Berlin", overlap="skip"
    )(of_kind(queue, digest))
    await worked(queue, lambda: True)
    shown = await got(queue.client.broker().schedule(queue.topic, "digest"))
    assert (shown["cron"], shown["zone"], shown["overlap"]) == (
        "0 9 * * 1-5",
        "Europe/Berlin",
        "skip",
    )


@on_a_queue
async def test_wrong_arguments_of_every(queue: Queue) -> None:
    def takes(text: str) -> None:
        pass

    decorator = queue.client.task(queue.topic)
    with pytest.raises(TypeError, match="a cron expression or a timedelta"):
        decorator.every(5)
    with pytest.raises(ValueError, match="leave tz out"):
        decorator.every(timedelta(1), tz="UTC")
    with pytest.raises(TypeError, match="no argument 'cron'"):
        decorator.every("* * * * *", cron="x")
    twice = queue.client.task(queue.topic, name="two").every("* * * * *").every("0 * * * *")
    with pytest.raises(ValueError, match="have a schedule 'two' already"):
        twice(of_kind(queue, lambda: None))
    with pytest.raises(TypeError, match="task takes: missing"):
        decorator.every("* * * * *")(of_kind(queue, takes))


@on_a_queue
async def test_a_refused_schedule_names_its_task(queue: Queue) -> None:
    """A worker with many tasks does not start: its programmer has to find the one."""
    decorator = queue.client.task(queue.topic, name="digest", wait=timedelta(milliseconds=500))
    decorator.every("61 * * * *")(of_kind(queue, lambda: None))
    why = "schedule 'digest' of task 'digest', .*minute must lie from 0 to 59"
    with pytest.raises(BadRequest, match=why):
        await worked(queue, lambda: True)
