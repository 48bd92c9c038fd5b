"""The rows of `delaylog top`: one for each topic that the metrics name, sorted by a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delaylog.broker.cli.values import bar
from delaylog.broker.cli.watching.scrapes import Change, Scrape, by_topic

READY: Final = "delaylog_ready_lateness_seconds"
HANDED_OUT: Final = "delaylog_lateness_seconds"
OTHER: Final = "(other topics)"
"""The row of the topics beyond the limit of metrics; no topic has this name."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic over one interval, all its groups together."""

    topic: str
    sent_per_s: float
    out_per_s: float
    ended_per_s: float
    waiting: int
    ready: int
    leased: int
    dead: int
    oldest_s: float
    """Age of the oldest ready message; 0 without one."""
    ready_p99_s: float | None
    """None: no message became ready in the interval."""
    late_p99_s: float | None


COLUMNS: Final = {
    "topic": ("n", "topic"),
    "sent_per_s": ("s", "sent/s"),
    "out_per_s": ("o", "out/s"),
    "ended_per_s": ("e", "ended/s"),
    "waiting": ("w", "waiting"),
    "ready": ("r", "ready"),
    "leased": ("l", "leased"),
    "dead": ("d", "dead"),
    "oldest_s": ("a", "oldest"),
    "ready_p99_s": ("y", "ready p99"),
    "late_p99_s": ("p", "late p99"),
}
"""The columns: the key that sorts by each, and its title."""
NARROW: Final = ("topic", "sent_per_s", "out_per_s", "ready", "leased", "oldest_s", "late_p99_s")
"""The columns for which a terminal of less than `WIDE` has room."""
WIDE: Final = 110
BY_KEY: Final = {key: name for name, (key, _) in COLUMNS.items()}


def rows_of(change: Change, namespace: str, sort: str = "out_per_s") -> list[TopicRow]:
    """The rows of a namespace's topics, and one of all topics without metrics of their own."""
    before, now = by_topic(change.before), by_topic(change.now)
    none = Scrape(change.before.at_s, {})
    rows = [
        _row(Change(before.get(key, none), mine), *key)
        for key, mine in now.items()
        if key[0] in (namespace, "") and "delaylog_sent_total" in mine.samples
    ]
    rows.sort(key=lambda row: row.topic)
    if sort != "topic":
        rows.sort(key=lambda row: getattr(row, sort) or 0, reverse=True)
    return rows


def _row(change: Change, namespace: str, topic: str) -> TopicRow:
    labels = {"namespace": namespace, "topic": topic}
    now, prefix = change.now, "delaylog_"
    ready = int(now.value(f"{prefix}ready_messages", **labels))
    leased = int(now.value(f"{prefix}leased_messages", **labels))
    living = int(now.value(f"{prefix}living_messages", **labels))
    ages = now.samples.get(f"{prefix}oldest_due_age_seconds", {})
    return TopicRow(
        topic=topic if namespace else OTHER,
        sent_per_s=change.per_second(f"{prefix}sent_total", **labels),
        out_per_s=change.per_second(f"{prefix}delivered_total", **labels),
        ended_per_s=change.per_second(f"{prefix}ended_total", **labels),
        waiting=max(living - ready - leased, 0),
        ready=ready,
        leased=leased,
        dead=int(now.value(f"{prefix}ended_total", state="dead", **labels)),
        oldest_s=max(
            (age for each, age in ages.items() if labels.items() <= dict(each).items()), default=0
        ),
        ready_p99_s=change.quantile(0.99, READY, **labels),
        late_p99_s=change.quantile(0.99, HANDED_OUT, **labels),
    )


def cells(row: TopicRow, columns: Iterable[str] = COLUMNS) -> tuple[str, ...]:
    """The texts of a row's columns."""
    return tuple(_cell(name, getattr(row, name)) for name in columns)


def _cell(name: str, value: Any) -> str:
    if name.endswith("_per_s"):
        return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
    if name.endswith("_s"):
        return seconds_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def seconds_text(seconds: float | None) -> str:
    """A duration in the unit that keeps it short; `-` for none."""
    if not seconds:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def bars(buckets: Sequence[tuple[float, float]], width: int) -> list[tuple[str, str, str]]:
    """(bound, bar, count) of each bucket with values."""
    most = max((count for _, count in buckets), default=0)
    return [
        (
            "more" if bound == float("inf") else f"<= {seconds_text(bound)}",
            bar(count / most, width),
            f"{count:,.0f}",
        )
        for bound, count in buckets
        if count > 0
    ]
