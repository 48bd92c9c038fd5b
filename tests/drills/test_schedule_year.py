"""A year of 10,000 schedules on the embedded broker's clock: each firing against a model.

The model has no recurrence engine: it writes a schedule's time beside each date of its weekday, and
asks the zone which instants show it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest

import delaylog
from delaylog.broker.embedded.clocks import ManualClock
from delaylog.broker.engine.schedules.commands import put_schedule
from delaylog.broker.rules.schedules.zones import PACKAGED

SCHEDULES = 10_000
WEEKS = 52
WEEKLY_LIMIT_S, DAILY_LIMIT_S = 120, 600
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo", "Africa/Cairo")
WEEKDAYS = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
HOUR_S = 3_600
WEEK_MS = 7 * 24 * HOUR_S * 1_000


def instants_of(zone: ZoneInfo, wall: datetime) -> int:
    """The instant of a wall time in ms: its first pass, or the end of the gap that it is in."""
    guess = int(wall.replace(tzinfo=zone).timestamp())
    shown = datetime.fromtimestamp(guess, zone)
    if shown.replace(tzinfo=None, fold=0) == wall:
        # Of two passes, the one that begins earlier.
        earlier = datetime.fromtimestamp(guess - HOUR_S, zone).replace(tzinfo=None, fold=0)
        return (guess - HOUR_S if earlier == wall else guess) * 1_000
    at = guess - 2 * HOUR_S
    while datetime.fromtimestamp(at, zone).replace(tzinfo=None) < wall:
        at += 60
    return at * 1_000


@dataclass(frozen=True)
class Row:
    """A schedule of a time of the day, on one day of the week or on each."""

    name: str
    zone: str
    weekday: int | None
    minute: int

    @property
    def cron(self) -> str:
        """What is put."""
        day = "*" if self.weekday is None else WEEKDAYS[self.weekday]
        return f"{self.minute % 60} {self.minute // 60} * * {day}"

    def firings(self, begun_ms: int, until_ms: int) -> Iterator[str]:
        """Ids by the model, in a year of interest."""
        day = date(2025, 12, 29) - timedelta(days=1)
        while (day := day + timedelta(days=1)) < date(2027, 1, 4):
            if self.weekday in (None, day.weekday()):
                hour, minute = divmod(self.minute, 60)
                wall = datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001
                at = instants_of(PACKAGED.zone(self.zone), wall)
                if begun_ms <= at <= until_ms:
                    yield f"{self.name}@{at}"


def run_year(folder: Path, rows: list[Row]) -> float:
    """Fire a year in steps of a week, each firing received once; returns seconds of processor."""
    clock = ManualClock()
    begun_ms = clock.now_ms()
    found = 0
    until_ms = begun_ms + WEEKS * WEEK_MS
    wanted = {made for row in rows for made in row.firings(begun_ms, until_ms)}
    with delaylog.open(folder, fsync="never", clock=clock) as queue:
        thread = queue._thread

        async def put() -> None:
            engine = thread.node.engine
            topic = engine.make_topic("t", begun_ms)
            for row in rows:
                members = {"cron": row.cron, "zone": row.zone}
                put_schedule(engine.state, topic, row.name, members, b"x" * 100, begun_ms)

        thread.run(put())
        began_s, received_s = time.process_time(), 0.0
        for _ in range(WEEKS):
            clock.advance(days=7)
            receives_s = time.process_time()
            while messages := queue.receive("t", max=10_000):
                for message in messages:
                    # Each id once: a second one is missing here, and so is one of no instant.
                    wanted.remove(message.id)
                found += len(messages)
                queue.ack(messages)
            received_s += time.process_time() - receives_s
        spent_s = time.process_time() - began_s
    assert not wanted
    print(f"{found:,} firings in {spent_s:.1f} s, {received_s:.1f} of them to receive")
    return spent_s


def some_rows(count: int, *, weekly: bool) -> list[Row]:
    """Times of the day in several zones."""
    random = Random(1)
    return [
        Row(
            f"s{k}",
            random.choice(ZONES),
            random.randrange(7) if weekly else None,
            random.randrange(24 * 60),
        )
        for k in range(count)
    ]


@pytest.mark.drill
def test_a_year_of_weekly_schedules(tmp_path: Path) -> None:
    """520,000 firings in two minutes of processor time."""
    assert run_year(tmp_path / "folder", some_rows(SCHEDULES, weekly=True)) < WEEKLY_LIMIT_S


@pytest.mark.drill
def test_a_year_of_daily_schedules(tmp_path: Path) -> None:
    """3.65 million firings in ten minutes of processor time."""
    assert run_year(tmp_path / "folder", some_rows(SCHEDULES, weekly=False)) < DAILY_LIMIT_S


@pytest.mark.parametrize("weekly", [False, True])
def test_a_year_of_few_schedules(tmp_path: Path, weekly: bool) -> None:
    """The same with few of them, in every run of the tests."""
    run_year(tmp_path / "folder", some_rows(20, weekly=weekly))
