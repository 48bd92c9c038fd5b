"""Rows of the tables of settings and of metrics, in the core and in the `leaf.py` of each leaf.

Each start of the command line loads this module, so it imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: its flag is `--name`, its variable `DELAYLOG_NAME`, its TOML key `name`."""

    name: str
    default: str
    help: str

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return f"DELAYLOG_{self.key.upper()}"


Kind: TypeAlias = Literal["gauge", "counter", "histogram"]


class MetricRow(NamedTuple):
    """One metric."""

    name: str
    """As it is scraped; that of a counter ends in `_total`."""
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()


def gauge(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(f"delaylog_{name}", "gauge", text, labels)


def counter(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(f"delaylog_{name}_total", "counter", text, labels)


def histogram(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(f"delaylog_{name}", "histogram", text, labels)
