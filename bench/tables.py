"""Results as data and as aligned tables: a figure, the target beside it, met or missed.

A section of the bench returns one `Table`: rows are dicts of raw figures (these go into the JSON
file untouched) and columns say which figures are shown and how. The one rule: a figure is never
rounded before it is compared with its target.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """One promise and whether this run kept it; `met` is None where the run cannot tell."""

    text: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """`met`, `MISSED`, or a dash."""
        return {True: "met", False: "MISSED", None: "-"}[self.met]


def at_least(value: float | None, bound: float, text: str) -> Target:
    """The target that `value` is `bound` or more; `text` is the bound as people write it."""
    return Target(f">= {text}", None if value is None else value >= bound)


def at_most(value: float | None, bound: float, text: str) -> Target:
    """The target that `value` is `bound` or less."""
    return Target(f"<= {text}", None if value is None else value <= bound)


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, the figure of a row that stands under it, and how it is written."""

    heading: str
    key: str
    write: Callable[[Any], str] = str


@dataclass(slots=True)
class Row:
    """What was measured (`case`), its raw figures and its targets."""

    case: str
    figures: Mapping[str, Any]
    targets: Sequence[Target] = ()


@dataclass(slots=True)
class Table:
    """One section of the report."""

    title: str
    columns: Sequence[Column]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, case: str, figures: Mapping[str, Any], targets: Sequence[Target] = ()) -> None:
        """One more row."""
        self.rows.append(Row(case, figures, targets))

    def lines(self) -> list[str]:
        """The table as aligned markdown, with the target columns only if a row has targets."""
        judged = any(row.targets for row in self.rows)
        headings = ["case", *(column.heading for column in self.columns)]
        cells = [
            [row.case, *(_cell(row.figures.get(c.key), c.write) for c in self.columns)]
            for row in self.rows
        ]
        if judged:
            headings += ["target", "verdict"]
            for row, line in zip(self.rows, cells, strict=True):
                line.append("; ".join(target.text for target in row.targets) or "-")
                line.append("; ".join(target.verdict for target in row.targets) or "-")
        text_columns = {0, len(headings) - 1, len(headings) - 2} if judged else {0}
        table = _aligned(headings, cells, text_columns)
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return [f"## {self.title}", "", *table, *notes]

    def as_data(self) -> dict[str, Any]:
        """The table as plain data for the JSON file."""
        return {
            "title": self.title,
            "notes": list(self.notes),
            "rows": [
                {
                    "case": row.case,
                    **row.figures,
                    "targets": [{"text": t.text, "met": t.met} for t in row.targets],
                }
                for row in self.rows
            ],
        }


def missed(tables: Sequence[Table]) -> list[str]:
    """Every target that was not met, in words."""
    return [
        f"{table.title.partition(':')[0]}: {row.case}: {target.text}"
        for table in tables
        for row in table.rows
        for target in row.targets
        if target.met is False
    ]


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return float(statistics.median(values))


def rate(value: float) -> str:
    """`1.32 M`, `812 k`, `950`: things per second or counts."""
    if value >= 999_500:
        return f"{value / 1e6:.2f} M"
    if value >= 9_995:
        return f"{value / 1e3:.0f} k"
    return f"{value / 1e3:.1f} k" if value >= 1_000 else f"{value:.0f}"


def span(pair: Sequence[float]) -> str:
    """`780 k - 840 k`: the least and the most of several runs."""
    return f"{rate(pair[0])} - {rate(pair[-1])}"


def microseconds(value: float) -> str:
    """Microseconds with the digits that matter."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def milliseconds(value: float) -> str:
    """Milliseconds with the digits that matter."""
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}"


def seconds(value: float) -> str:
    """Seconds to a hundredth."""
    return f"{value:,.2f}"


def mebibytes(value: float) -> str:
    """Bytes as MiB."""
    return f"{value / (1 << 20):,.0f}"


def times(value: float) -> str:
    """How many times as much."""
    return f"{value:.2f}"


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{value * 100:.0f} %"


def whole(value: float) -> str:
    """An integer with thousands apart."""
    return f"{value:,.0f}"


def _cell(value: Any, write: Callable[[Any], str]) -> str:
    return "-" if value is None else write(value)


def _aligned(
    headings: Sequence[str], cells: Sequence[Sequence[str]], text_columns: set[int]
) -> list[str]:
    widths = [
        max(3, *(len(line[index]) for line in (headings, *cells))) for index in range(len(headings))
    ]

    def joined(line: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if index in text_columns else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    rule = [
        ":" + "-" * (width - 1) if index in text_columns else "-" * (width - 1) + ":"
        for index, width in enumerate(widths)
    ]
    return [joined(headings), joined(rule), *(joined(line) for line in cells)]
