"""A year of 10,000 weekly schedules on the embedded broker's clock: each firing against a model.

The model has no recurrence engine: it writes a schedule's time beside each date of its weekday, and
asks the zone which instants show it.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest

import delaylog
from delaylog.broker.embedded.clocks import ManualClock
from delaylog.broker.engine.schedules.commands import put_schedule
from delaylog.broker.schedules.zones import PACKAGED

SCHEDULES = 10_000
WEEKS = 52
LIMIT_S = 120
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo", "Africa/Cairo")
WEEKDAYS = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
HOUR_S = 3_600


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


@pytest.mark.drill
def test_a_year_of_weekly_schedules(tmp_path: Path) -> None:
    """520,000 firings in steps of a week, each received once, in two minutes of processor time."""
    random, clock = Random(1), ManualClock()
    begun_ms = clock.now_ms()
    rows = [
        (f"s{k}", random.choice(ZONES), random.randrange(7), random.randrange(24 * 60))
        for k in range(SCHEDULES)
    ]
    found: Counter[str] = Counter()
    with delaylog.open(tmp_path / "folder", fsync="never", clock=clock) as queue:
        node = queue._node
        topic = node.engine.make_topic("t", begun_ms)
        with node.locked():
            for name, zone, weekday, minute in rows:
                cron = f"{minute % 60} {minute // 60} * * {WEEKDAYS[weekday]}"
                members = {"cron": cron, "zone": zone}
                put_schedule(node.engine.state, topic, name, members, b"x" * 100, begun_ms)
        began_s, received_s = time.process_time(), 0.0
        for _ in range(WEEKS):
            clock.advance(days=7)
            receives_s = time.process_time()
            while messages := queue.receive("t", max=10_000):
                found.update(message.id for message in messages)
                queue.ack(messages)
            received_s += time.process_time() - receives_s
        spent_s = time.process_time() - began_s
    wanted: Counter[str] = Counter()
    for name, zone, weekday, minute in rows:
        day = date(2025, 12, 29)
        day += timedelta(days=(weekday - day.weekday()) % 7 - 7)
        while (day := day + timedelta(days=7)) < date(2027, 1, 4):
            wall = datetime(day.year, day.month, day.day, minute // 60, minute % 60)  # noqa: DTZ001
            at = instants_of(PACKAGED.zone(zone), wall)
            if begun_ms <= at <= clock.now_ms():
                wanted[f"{name}@{at}"] += 1
    assert found == wanted
    assert len(wanted) > 519_000
    print(f"{len(found):,} firings in {spent_s:.1f} s, {received_s:.1f} of them to receive")
    assert spent_s < LIMIT_S
