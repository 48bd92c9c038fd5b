"""The metrics of a broker as text, parsed; what changed between two scrapes; rows of topics.

There is one row for each topic that the metrics name, sorted by a column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeAlias

from delaylog.broker.cli.values import bar

# -------------------------------------------------------------------------------------- scrapes

Labels: TypeAlias = tuple[tuple[str, str], ...]
_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)\Z")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Scrape:
    """The samples of one answer of `/metrics`."""

    at_s: float
    """When, by a steady clock."""
    samples: Mapping[str, Mapping[Labels, float]]
    """By name, and by labels in the order of the text."""

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels; 0 if there are none."""
        wanted = labels.items()
        found = self.samples.get(name, {})
        return sum(value for given, value in found.items() if wanted <= dict(given).items())


def by_topic(scrape: Scrape) -> dict[tuple[str, str], Scrape]:
    """The samples about topics, apart for each (namespace, topic)."""
    out: dict[tuple[str, str], dict[str, dict[Labels, float]]] = {}
    for name, found in scrape.samples.items():
        for labels, value in found.items():
            given = dict(labels)
            if "topic" in given:
                mine = out.setdefault((given["namespace"], given["topic"]), {})
                mine.setdefault(name, {})[labels] = value
    return {key: Scrape(scrape.at_s, samples) for key, samples in out.items()}


def parse_scrape(text: str, at_s: float) -> Scrape:
    """Parse Prometheus text. Lines that are no samples are passed over."""
    samples: dict[str, dict[Labels, float]] = {}
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found is not None:
            labels = tuple(
                (name, _ESCAPED.sub(_unescape, value))
                for name, value in _LABEL.findall(found[2] or "")
            )
            samples.setdefault(found[1], {})[labels] = float(found[3])
    return Scrape(at_s, samples)


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def quantile(counts: Sequence[float], bounds: Sequence[float], share: float) -> float | None:
    """The value below which `share` of the values are; None without values.

    Within a bucket values are taken as spread evenly; above the last bound it is that bound.
    """
    left, low = share * sum(counts), 0.0
    if left <= 0:
        return None
    for count, bound in zip(counts, bounds, strict=False):
        if count and left <= count:
            return low + (bound - low) * left / count
        left, low = left - count, bound
    return low


@dataclass(frozen=True, slots=True)
class Change:
    """What happened between two scrapes of one broker."""

    before: Scrape
    now: Scrape

    def per_second(self, name: str, **labels: str) -> float:
        """The rate of a counter. One that fell began again at zero."""
        seconds = max(self.now.at_s - self.before.at_s, 1e-3)
        value, old = self.now.value(name, **labels), self.before.value(name, **labels)
        return (value - old if value >= old else value) / seconds

    def buckets(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """(upper bound, values) of a histogram's buckets, not cumulated, since `before`."""
        bounds = sorted(
            {
                float(dict(each)["le"].replace("+Inf", "inf"))
                for each in self.now.samples.get(f"{name}_bucket", {})
            }
        )
        upto = dict(self._cumulated(self.now, name, labels))
        old = dict(self._cumulated(self.before, name, labels))
        if upto.get(float("inf"), 0) < old.get(float("inf"), 0):
            old = {}
        out, below = [], 0.0
        for bound in bounds:
            count = upto.get(bound, 0) - old.get(bound, 0)
            out.append((bound, count - below))
            below = count
        return out

    def _cumulated(
        self, scrape: Scrape, name: str, labels: Mapping[str, str]
    ) -> Iterator[tuple[float, float]]:
        wanted = labels.items()
        sums: dict[float, float] = {}
        for given, value in scrape.samples.get(f"{name}_bucket", {}).items():
            members = dict(given)
            if wanted <= members.items():
                bound = float(members["le"].replace("+Inf", "inf"))
                sums[bound] = sums.get(bound, 0) + value
        yield from sums.items()

    def quantile(self, share: float, name: str, **labels: str) -> float | None:
        """The value below which `share` of the values are, None without values; see `quantile`."""
        buckets = self.buckets(name, **labels)
        bounds = [bound for bound, _ in buckets if bound < inf]
        return quantile([count for _, count in buckets], bounds, share)


# ------------------------------------------------------------------------------- rows of topics

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
