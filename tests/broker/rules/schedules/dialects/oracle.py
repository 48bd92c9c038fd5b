"""An oracle for lines of AWS, Quartz and Spring, and the writer of their instants.

It asks of each day and each second of it whether the line has it: it writes no line of ours and has
no parser of ours. Slow, and plain. None of the three schedulers was run: the rules are those of
their documents, and a sample of the instants was compared with a calendar by hand.

    .venv/bin/python -m tests.broker.rules.schedules.dialects.oracle   # writes corpus.txt
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).with_name("corpus.txt")
START: Final = date(2027, 1, 1)
"""A Friday."""
SHOWN: Final = 4
_DAYS: Final = 366 * 9
_WEEKDAYS: Final = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
_MONTHS: Final = [
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
]


def numbers(text: str, low: int, high: int, value: Callable[[str], int] = int) -> set[int]:
    """What a list of numbers, ranges and steps has; ranges may wrap."""
    found: set[int] = set()
    for term in text.split(","):
        base, slash, step = term.partition("/")
        if base in ("*", "?", ""):
            first, last = low, high
        else:
            start, dash, end = base.partition("-")
            first = value(start)
            last = value(end) if dash else high if slash else first
        at, count = first, 0
        while True:
            if count % int(step or 1) == 0:
                found.add(at)
            if at == last:
                break
            at, count = low if at == high else at + 1, count + 1
    return found


def month_number(text: str) -> int:
    """A month, by name or number."""
    return _MONTHS.index(text) + 1 if text in _MONTHS else int(text)


def has_date(text: str, day: date) -> bool:
    """Whether a field of days of the month has a day."""
    last = monthrange(day.year, day.month)[1]
    for term in text.split(","):
        if term in ("*", "?"):
            return True
        if "W" in term:
            body = term.removesuffix("W")
            wanted = last - int(body[2:] or 0) if body.startswith("L") else int(body)
            if not 1 <= wanted <= last:
                continue
            near = [wanted, wanted - 1, wanted + 1, wanted - 2, wanted + 2]
            legal = [each for each in near if 1 <= each <= last]
            first = next(n for n in legal if date(day.year, day.month, n).weekday() < 5)
            if day.day == first:
                return True
        elif term.startswith("L"):
            if day.day == last - int(term[2:] or 0):
                return True
        elif day.day in numbers(term, 1, 31):
            return True
    return False


def has_weekday(text: str, day: date, *, sunday: int) -> bool:
    """Whether a field of weekdays has a day; `sunday` is the number of Sunday, 1 or 7."""

    def number(word: str) -> int:
        at = _WEEKDAYS.index(word) + 1 if word in _WEEKDAYS else int(word)
        if word in _WEEKDAYS and sunday == 1:
            return at % 7 + 1
        return 7 if sunday == 7 and at == 0 else at

    mine = day.weekday() + 1 if sunday == 7 else (day.weekday() + 1) % 7 + 1
    last = monthrange(day.year, day.month)[1]
    for term in text.split(","):
        if term in ("*", "?"):
            return True
        if term == "L":
            if mine == 7:
                return True
        elif "#" in term:
            word, _, nth = term.partition("#")
            if mine == number(word) and (day.day - 1) // 7 + 1 == int(nth):
                return True
        elif term.endswith("L"):
            if mine == number(term[:-1]) and day.day + 7 > last:
                return True
        elif mine in numbers(term, 1, 7, number):
            return True
    return False


def instants(dialect: str, line: str) -> Iterator[datetime]:
    """The instants of a line from START on, in UTC."""
    fields = line.upper().removeprefix("CRON(").removesuffix(")").split()
    if dialect == "aws":
        fields.insert(0, "0")
    fields.append("*")
    second, minute, hour, dates, months, weekdays, year = fields[:7]
    hours, minutes = sorted(numbers(hour, 0, 23)), sorted(numbers(minute, 0, 59))
    seconds = sorted(numbers(second, 0, 59))
    times = [time(h, m, s) for h in hours for m in minutes for s in seconds]
    for ahead in range(_DAYS):
        day = START + timedelta(days=ahead)
        if (
            day.month in numbers(months, 1, 12, month_number)
            and day.year in numbers(year, 1970, 2199)
            and has_date(dates, day)
            and has_weekday(weekdays, day, sunday=7 if dialect == "spring" else 1)
        ):
            for at in times:
                yield datetime.combine(day, at, UTC)


def first_instants(dialect: str, line: str) -> list[str]:
    """The first instants, as text."""
    found = []
    for at in instants(dialect, line):
        found.append(f"{at:%Y-%m-%dT%H:%M:%S}")
        if len(found) == SHOWN:
            break
    return found


def read_corpus() -> list[tuple[str, str, list[str]]]:
    """(dialect, line, instants) of each line."""
    rows = []
    for row in CORPUS.read_text().splitlines():
        dialect, line, *found = [part.strip() for part in row.split(" | ")]
        rows.append((dialect, line, found[0].split() if found else []))
    return rows


if __name__ == "__main__":
    rows = [(*row[:2], " ".join(first_instants(*row[:2]))) for row in read_corpus()]
    CORPUS.write_text("".join(f"{' | '.join(row)}\n" for row in rows))
