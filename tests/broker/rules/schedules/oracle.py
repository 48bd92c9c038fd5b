"""An oracle for cron expressions over clock changes, and the writer of its golden table.

It walks over UTC in fixed steps and looks at the wall clock at each, as a person would: it has no
rule of PEP 495, no parser of cronsim and no mapping from wall time to instants. Slow, and plain.

    .venv/bin/python tests/broker/rules/schedules/oracle.py     # writes golden_instants.txt
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from delaylog.broker.rules.schedules.zones import PACKAGED

TABLE: Final = Path(__file__).with_name("golden_instants.txt")
MARGIN_S: Final = 26 * 3_600
"""More than any clock change: what is near the end of a range is seen with its other pass."""
TURNS: Final = """
Europe/Berlin 2027-03-28T01:00:00Z
Europe/Berlin 2027-10-31T01:00:00Z
America/New_York 2026-03-08T07:00:00Z
America/New_York 2026-11-01T06:00:00Z
Australia/Lord_Howe 2025-10-04T15:30:00Z
Australia/Lord_Howe 2025-04-05T15:00:00Z
Pacific/Apia 2011-12-30T10:00:00Z
Pacific/Apia 2012-03-31T14:00:00Z
Africa/Casablanca 2025-02-23T02:00:00Z
Africa/Casablanca 2025-04-06T02:00:00Z
America/Sao_Paulo 2018-11-04T03:00:00Z
America/Sao_Paulo 2019-02-17T02:00:00Z
Africa/Cairo 2024-04-25T22:00:00Z
Africa/Cairo 2024-10-31T21:00:00Z
Antarctica/Troll 2025-03-30T01:00:00Z
Antarctica/Troll 2025-10-26T01:00:00Z
Pacific/Chatham 2025-09-27T14:00:00Z
Pacific/Chatham 2025-04-05T14:00:00Z
Asia/Kathmandu 1985-12-31T18:30:00Z
America/St_Johns 2011-03-13T03:31:00Z
America/St_Johns 2010-11-07T02:31:00Z
Europe/Dublin 2025-03-30T01:00:00Z
Europe/Dublin 2025-10-26T01:00:00Z
America/Caracas 2007-12-09T07:00:00Z
America/Caracas 2016-05-01T07:00:00Z
Asia/Pyongyang 2015-08-14T15:00:00Z
Pacific/Kwajalein 1993-08-21T12:00:00Z
America/Havana 2025-11-02T05:00:00Z
Asia/Gaza 2023-04-29T00:00:00Z
"""
"""Instants of clock changes. The years are such that later zone data will not change them."""


@dataclass(frozen=True)
class Case:
    """An expression with its policies, and the range of instants that is looked at."""

    zone: str
    cron: str
    gap: str
    fold: str
    from_s: int
    to_s: int

    @property
    def six(self) -> bool:
        """Whether the expression has seconds."""
        return len(self.cron.split()) == 6


def field_numbers(text: str, low: int, high: int) -> set[int]:
    """What one field matches: stars, ranges, lists and steps of numbers."""
    found: set[int] = set()
    for term in text.split(","):
        base, _, step = term.partition("/")
        first, _, last = base.partition("-")
        if base == "*":
            start, stop = low, high
        else:
            start = int(first)
            stop = int(last) if last else (high if step else start)
        found |= set(range(start, stop + 1, int(step or 1)))
    return found


class Expression:
    """A cron expression as a question about one wall time."""

    def __init__(self, cron: str) -> None:
        fields = cron.split()
        if len(fields) == 5:
            fields.insert(0, "0")
        self.fields = fields
        ranges = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
        self.sets = [field_numbers(f, *r) for f, r in zip(fields, ranges, strict=True)]
        self.wildcard = fields[1][0] == "*" or fields[2][0] == "*"

    def matches(self, wall: datetime) -> bool:
        """Whether it names the wall time."""
        seconds, minutes, hours, days, months, weekdays = self.sets
        if wall.second not in seconds or wall.minute not in minutes or wall.hour not in hours:
            return False
        if wall.month not in months:
            return False
        by_day = wall.day in days
        by_weekday = wall.isoweekday() % 7 in {each % 7 for each in weekdays}
        either = self.fields[3][0] != "*" and self.fields[5][0] != "*"
        return (by_day or by_weekday) if either else (by_day and by_weekday)


def instants(case: Case) -> list[int]:
    """The instants of a case in [from_s, to_s), in seconds."""
    expression, zone = Expression(case.cron), PACKAGED.zone(case.zone)
    step = timedelta(seconds=1 if case.six else 60)
    passes: dict[datetime, list[int]] = defaultdict(list)
    skipped: dict[datetime, int] = {}
    previous: datetime | None = None
    for at in range(case.from_s - MARGIN_S, case.to_s + MARGIN_S, step.seconds):
        wall = on_the_wall(zone, at)
        passes[wall].append(at)
        while previous is not None and previous + step < wall:
            previous += step
            skipped[previous] = at
        previous = wall
    found: set[int] = set()
    for wall, seen in passes.items():
        if expression.matches(wall):
            first_and_last = {"first": seen[:1], "second": seen[-1:], "both": seen}
            found.update(seen if expression.wildcard else first_and_last[case.fold])
    if case.gap == "next" and not expression.wildcard:
        found.update(at for wall, at in skipped.items() if expression.matches(wall))
    return sorted(at for at in found if case.from_s <= at < case.to_s)


def on_the_wall(zone: ZoneInfo, at: int) -> datetime:
    """What the wall clock shows."""
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0)


def cases(zone_name: str, turn: int) -> list[Case]:
    """The cases around one clock change: times that it skips or repeats, and times around it."""
    zone = PACKAGED.zone(zone_name)
    last = on_the_wall(zone, turn - 1) + timedelta(seconds=1)
    first = on_the_wall(zone, turn)
    assert first != last, f"the clocks of {zone_name} do not change at {turn}"
    middle = first + (last - first) / 2
    middle -= timedelta(seconds=middle.second)
    minute, hour = middle.minute, middle.hour
    hours = ",".join(str(each) for each in sorted({(hour - 1) % 24, hour, (hour + 1) % 24}))
    policies = [("next", "first"), ("skip", "first")]
    if first < last:
        policies = [("next", "first"), ("next", "second"), ("next", "both")]
    # A lost day is seen whole.
    around = 26 * 3_600 if abs(first - last) < timedelta(hours=3) else 30 * 3_600
    found = []
    for gap, fold in policies:
        fixed = (f"{minute} {hour} * * *", f"{minute},59 {hours} * * *")
        days = (turn - around, turn + around)
        found.extend(Case(zone_name, cron, gap, fold, *days) for cron in fixed)
        six = f"30 {minute} {hours} * * *"
        found.append(Case(zone_name, six, gap, fold, turn - 2 * 3_600, turn + 3 * 3_600))
    near = (turn - 2 * 3_600, turn + 2 * 3_600)
    found.append(Case(zone_name, "*/20 * * * *", "next", "first", *near))
    found.append(Case(zone_name, f"{minute} * * * *", "skip", "second", *near))
    found.append(Case(zone_name, f"15 */30 {hours} * * *", "next", "first", *near))
    return found


def utc(at: int) -> str:
    """An instant as text."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> int:
    """The instant of a text."""
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z").timestamp())


def all_cases() -> list[Case]:
    """The cases of the table."""
    turns = [line.split() for line in TURNS.split("\n") if line]
    return [case for zone, at in turns for case in cases(zone, seconds(at))]


def line_of(case: Case, found: list[int]) -> str:
    """A line of the table."""
    times = f"{utc(case.from_s)} {utc(case.to_s)}"
    head = f"{case.zone} | {case.cron} | {case.gap} {case.fold} | {times} | "
    return head + " ".join(utc(at) for at in found)


def read_table() -> list[tuple[Case, list[int]]]:
    """The table as it is stored."""
    rows = []
    for line in TABLE.read_text().splitlines():
        zone, cron, policies, times, found = line.split(" | ")
        gap, fold = policies.split()
        start, end = times.split()
        case = Case(zone, cron, gap, fold, seconds(start), seconds(end))
        rows.append((case, [seconds(each) for each in found.split()]))
    return rows


if __name__ == "__main__":
    TABLE.write_text("".join(f"{line_of(case, instants(case))}\n" for case in all_cases()))
