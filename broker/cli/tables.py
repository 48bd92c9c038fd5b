"""Tables that fit a terminal, as pure functions: ids stay whole, so that they can be copied.

What does not fit gives way in this order: the milliseconds of times, the ends of long texts, and at
last whole columns, those that the caller can spare first, then from the right. A table of one row
becomes a line for each column instead, which loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

GAP: Final = 2
"""Blanks between two columns."""
TEXT_WIDTH_MIN: Final = 16
"""A text that may be cut keeps this many columns."""
TEXTS: Final = frozenset(
    {
        *("reason", "body", "tags", "key", "note", "url", "http", "fit"),
        *("cron", "rrule", "grants", "tokens", "value", "default"),
    }
)
"""Columns whose cells may be cut: their beginning says enough to look further."""
WHOLE: Final = frozenset({"id", "receipt", "topic", "group", "schedule"})
"""Columns that are always there: they name the row, as the first one does if it is no namespace."""
_MS: Final = re.compile(r"(T\d\d:\d\d:\d\d)\.\d{3}(?=Z|[+-]\d\d:\d\d)")


class Fitted(NamedTuple):
    """A table that fits, if its ids do."""

    columns: list[str]
    rows: list[list[str]]
    widths: list[int]
    left_out: list[str]
    """Columns for which there was no room."""
    whole: bool
    """Whether nothing is left out or cut."""


def fit(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    spare: Sequence[str] = (),
    measure: Callable[[str], int] = len,
) -> Fitted:
    """The columns and cells to print in `width` columns of a terminal.

    `spare`: the columns to leave out first; `measure`: the columns that a text takes.
    """

    def natural(at: int) -> int:
        # What is wider than the terminal need not be measured to its end.
        return max(
            measure(text[: width + 1]) for text in (columns[at], *(row[at] for row in cells))
        )

    def least(at: int) -> int:
        return min(widths[at], TEXT_WIDTH_MIN) if columns[at] in TEXTS else widths[at]

    cells = [list(row) for row in rows]
    shown = list(range(len(columns)))
    widths = [natural(at) for at in shown]
    if _total(widths) > width:
        cells = [[_MS.sub(r"\1", cell) for cell in row] for row in cells]
        widths = [natural(at) for at in shown]
    kept = {at for at in shown if columns[at] in WHOLE or (at == 0 and columns[0] != "namespace")}
    first = [columns.index(name) for name in spare if name in columns]
    order = [*first, *(at for at in reversed(shown) if at not in first)]
    for at in order:
        if _total([least(each) for each in shown]) <= width:
            break
        if at not in kept:
            shown.remove(at)
    cut = [at for at in shown if columns[at] in TEXTS and at not in kept]
    whole_widths = [widths[at] for at in shown]
    room = width - _total([0 if at in cut else widths[at] for at in shown])
    for left, at in zip(range(len(cut), 0, -1), sorted(cut, key=widths.__getitem__), strict=True):
        # The shorter ones need less than their share, which the longer ones get.
        widths[at] = min(widths[at], max(room // left, TEXT_WIDTH_MIN))
        room -= widths[at]
    return Fitted(
        [columns[at] for at in shown],
        [
            [_cut(row[at], widths[at], measure) if at in cut else row[at] for at in shown]
            for row in cells
        ],
        [widths[at] for at in shown],
        [columns[at] for at in range(len(columns)) if at not in shown],
        whole_widths == [widths[at] for at in shown] and len(shown) == len(columns),
    )


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(len(widths) - 1, 0)


def _cut(text: str, width: int, measure: Callable[[str], int]) -> str:
    """The text, or as much of its beginning as has room."""
    if measure(text[: width + 1]) <= width and len(text) <= width:
        return text
    head = text[:width]
    while head and measure(head) > width - 1:
        head = head[:-1]
    return f"{head}…"
