"""The demo's picture: one HTML file with the load to come and the lateness of the played year.

The load is what the broker's forecast said after the load, by minute, and what its files say, by
day of the year; so is the lateness, from the due time to the ack. Nothing is drawn that was not
read by the forecast call or by the format `delaylog-segments`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from charts import document, line_chart, table

DAYS: Final = 12 * 31
"""Of the year, whose months all have 31 days: short ones end with days without flights."""
MINUTE_MS: Final = 60_000


class Year(NamedTuple):
    """When the year is played, by the wall clock."""

    start_ms: int
    span_ms: int

    @property
    def day_s(self) -> float:
        """How long a day of the year takes."""
        return self.span_ms / DAYS / 1000


class Day(NamedTuple):
    """The messages due on a day, by what the files say."""

    number: int
    messages: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: int | None


def read_year(
    spark: Any, folder: Path, year: Year, after_ms: int
) -> tuple[list[Day], dict[int, int]]:
    """The days with messages in order; by minute, how many are due after a time."""
    from pyspark.sql import functions as sql

    rows = (
        spark.read.format("delaylog-segments")
        .options(path=str(folder), columns="deliver_at,lateness_ms")
        .load()
        .withColumn("due_ms", sql.unix_millis("deliver_at"))
    )
    day = sql.floor((sql.col("due_ms") - year.start_ms) * DAYS / year.span_ms)
    shares = sql.percentile("lateness_ms", sql.array(sql.lit(0.5), sql.lit(0.99)))
    by_day = rows.groupBy(day.alias("day")).agg(
        sql.count("*").alias("n"), shares.alias("late"), sql.max("lateness_ms").alias("latest")
    )
    days = []
    for row in by_day.orderBy("day").collect():
        p50_ms, p99_ms = row.late or (None, None)
        days.append(Day(row.day, row.n, p50_ms, p99_ms, row.latest))
    minute = sql.floor(sql.col("due_ms") / MINUTE_MS) * MINUTE_MS
    later = rows.where(sql.col("due_ms") > after_ms)
    by_minute = later.groupBy(minute.alias("minute_ms")).count().collect()
    return days, {row.minute_ms: row["count"] for row in by_minute}


def write_picture(
    path: Path,
    year: Year,
    days: Sequence[Day],
    minutes: Mapping[int, int],
    forecast: Mapping[str, Any],
) -> None:
    """Write the file. `forecast` is the call's answer; its empty minutes are left out."""
    messages = sum(day.messages for day in days)
    worst_ms = max((day.max_ms or 0 for day in days), default=0)
    asked_s = (year.start_ms - forecast["now_ms"]) / 1000
    asked = f"{abs(asked_s):.1f} s {'before' if asked_s > 0 else 'after'} the first due time"
    told = {each["from_ms"]: each["count"] for each in forecast["minutes"] if each["count"]}
    by_number = {day.number: day for day in days}
    # Days without flights are drawn as such, and so is what a slow load has put behind the year.
    numbers = range(max(DAYS, *(number + 1 for number in by_number)))
    marks = [(31.0 * at + 15, date(2013, at + 1, 1).strftime("%b")) for at in range(12)]

    def line(value: Callable[[Day], float | None]) -> list[tuple[float, float | None]]:
        known = ((number, by_number.get(number)) for number in numbers)
        return [(float(number), None if day is None else value(day)) for number, day in known]

    load = [(x, y or 0.0) for x, y in line(lambda day: day.messages / year.day_s)]
    parts = [
        f"<p>{messages:,} flights of 2013 are due within {year.span_ms / 1000:g} s, a day of the "
        f"year in {year.day_s * 1000:.1f} ms. The lines are what the broker's files say.</p>",
        line_chart("Load to come: messages by due time", {"due": load}, "/s", marks),
        f"<p>The forecast after the load, {asked}, and the files:</p>",
        table(
            ("minute (UTC)", "forecast", "due later, by the files"),
            [
                (_clock(at), f"{told.get(at, 0):,}", f"{minutes.get(at, 0):,}")
                for at in sorted({*told, *minutes})
            ],
        ),
        line_chart(
            "Lateness: from the due time to the ack",
            {
                "p50": line(lambda day: day.p50_ms),
                "p99": line(lambda day: day.p99_ms),
                "max": line(lambda day: day.max_ms),
            },
            "ms",
            marks,
        ),
        f"<p>The latest of all was acknowledged {worst_ms:,} ms after its due time.</p>",
    ]
    path.write_text(document("delaylog: a year of flights through Spark", parts), "utf-8")


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M")
