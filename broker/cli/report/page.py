"""The page of `delaylog report`: objective, charts, incidents, and the longest delays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from delaylog.broker.cli.report.analysis import (
    Incident,
    Window,
    cause_text,
    incidents,
    later_than,
    summed,
)
from delaylog.broker.cli.report.html_file import document, table
from delaylog.broker.cli.report.svg import TICKS, line_chart
from delaylog.broker.cli.watching.scrapes import quantile
from delaylog.broker.cli.watching.topic_rows import seconds_text
from delaylog.broker.engine.watch.lateness import BOUNDS_MS
from delaylog.broker.host.metrics.minutes import MINUTE_MS, MinuteRow
from delaylog.broker.host.watch.timings import DISK_BOUNDS

LATE_SHOWN: Final = 25
POINTS_MAX: Final = 480
"""Points of a line: rows are joined so that a week is as readable as an hour."""


def page(rows: Sequence[MinuteRow], title: str, late_ms: int, window: Window) -> str:
    """The whole page. `late_ms` = the objective, a bound of lateness."""
    found = incidents(rows, late_ms, window)
    parts = [
        "" if rows else "<p>There are no figures of this time.</p>",
        _summary(rows, late_ms),
        *_charts(rows, late_ms, window),
        "<h2>Incidents</h2>",
        table(("from (UTC)", "minutes", "what"), map(_incident, found)) if found else "<p>none</p>",
        "<h2>Longest delays</h2><p>Of the messages that were handed out in a minute, the one that "
        "was handed out longest after its due time, of each of the three groups with the longest. "
        "Messages that nobody has taken yet are not among them: they are under Incidents.</p>",
        _latest(rows),
    ]
    return document(title, parts)


def _summary(rows: Sequence[MinuteRow], late_ms: int) -> str:
    ready, out = summed(rows, "ready_late"), summed(rows, "out_late")
    facts: list[tuple[str, str]] = [
        ("minutes with figures", f"{len(rows):,}"),
        ("messages sent", f"{sum(row.sent for row in rows):,}"),
        ("handed out", f"{sum(row.delivered for row in rows):,}"),
        ("ended", f"{sum(row.ended for row in rows):,}"),
        ("dead letters", f"{sum(row.dead for row in rows):,}"),
    ]
    for name, counts in (("ready", ready), ("handed out", out)):
        total = sum(counts)
        if not total:
            facts.append((f"{name} after the due time", "no message became due"))
            continue
        in_time = 1 - later_than(counts, late_ms) / total
        figures = (quantile(counts, BOUNDS_MS, share) or 0 for share in (0.5, 0.99, 0.999))
        p50, p99, p999 = (seconds_text(each / 1000) for each in figures)
        facts.append((f"{name} within {late_ms} ms", f"{in_time:.3%} of {total:,}"))
        facts.append((f"{name}: p50, p99, p99.9", f"{p50}, {p99}, {p999}"))
    return table(("", ""), facts)


def _charts(rows: Sequence[MinuteRow], late_ms: int, window: Window) -> Iterable[str]:
    step = -(-(window.end - window.first) // POINTS_MAX)
    times = _times(window)

    def line(value: Callable[[Sequence[MinuteRow]], float | None]) -> list[tuple[float, Any]]:
        return [(at, value(some) if some else None) for at, some in _joined(rows, step, window)]

    def late(name: str, share: float) -> Callable[[Sequence[MinuteRow]], float | None]:
        return lambda some: quantile(summed(some, name), BOUNDS_MS, share)

    def rate(name: str) -> Callable[[Sequence[MinuteRow]], float | None]:
        return lambda some: sum(getattr(row, name) for row in some) / (60 * len(some))

    def beyond(some: Sequence[MinuteRow]) -> float | None:
        counts = summed(some, "ready_late")
        return 100 * later_than(counts, late_ms) / sum(counts) if sum(counts) else None

    yield line_chart(
        "Lateness: from due to ready, and to handed out",
        {
            "ready p99": line(late("ready_late", 0.99)),
            "handed out p99": line(late("out_late", 0.99)),
            "ready p50": line(late("ready_late", 0.5)),
        },
        "ms",
        times,
    )
    yield line_chart(f"Messages ready over {late_ms} ms late", {"share": line(beyond)}, "%", times)
    yield line_chart(
        "Throughput",
        {
            "sent": line(rate("sent")),
            "handed out": line(rate("delivered")),
            "ended": line(rate("ended")),
        },
        "/s",
        times,
    )
    yield line_chart(
        "Ready messages", {"ready": line(lambda some: float(some[-1].ready))}, "", times
    )
    yield line_chart(
        "Syncs of the disk",
        {"p99": line(lambda some: _ms(quantile(summed(some, "syncs"), DISK_BOUNDS, 0.99)))},
        "ms",
        times,
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _joined(
    rows: Sequence[MinuteRow], step: int, window: Window
) -> Iterable[tuple[float, list[MinuteRow]]]:
    """The rows of each `step` minutes, with the first minute; an empty list interrupts a line."""
    by_place: dict[int, list[MinuteRow]] = {}
    for row in rows:
        by_place.setdefault((row.minute - window.first) // step, []).append(row)
    for minute in range(window.first, window.end, step):
        yield float(minute), by_place.get((minute - window.first) // step, [])


def _times(window: Window) -> list[tuple[float, str]]:
    first, length = window.first, window.end - window.first
    form = "%m-%d %H:%M" if length > 1_440 else "%H:%M"
    minutes = (first + length * (2 * n + 1) // (2 * TICKS) for n in range(TICKS))
    return [(float(minute), _utc(minute, form)) for minute in dict.fromkeys(minutes)]


def _utc(minute: int, form: str = "%Y-%m-%d %H:%M") -> str:
    return datetime.fromtimestamp(minute * 60, UTC).strftime(form)


def _incident(each: Incident) -> tuple[str, str, str]:
    return _utc(each.from_minute), f"{each.to_minute - each.from_minute:,}", each.what


def _latest(rows: Sequence[MinuteRow]) -> str:
    late = sorted((each for row in rows for each in row.late), key=lambda each: -each.late_ms)
    if not late:
        return "<p>none</p>"
    cells = [
        (
            "/".join(filter(None, (each.namespace, each.topic))),
            each.group,
            each.message_id,
            seconds_text(each.late_ms / 1000),
            _utc(each.at_ms // MINUTE_MS),
            ", ".join(
                f"{cause_text(cause)} {seconds_text(ms / 1000)}" for cause, ms in each.causes
            ),
        )
        for each in late[:LATE_SHOWN]
    ]
    return table(("topic", "group", "message", "late by", "handed out (UTC)", "causes"), cells)
