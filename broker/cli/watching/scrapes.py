"""The metrics of a broker as text, parsed, and what changed between two scrapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

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
