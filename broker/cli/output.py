"""What verbs print: JSON lines, tables and colours on a terminal, plain lines elsewhere.

Plain lines are for pipes, such as to `cut` and `awk`: columns between tabs without a header, or a
table of counts under one. `rich` is loaded only for a terminal.

Tables fit a terminal, and ids stay whole, so that they can be copied. What does not fit gives way
in this order: the milliseconds of times, the ends of long texts, and at last whole columns, those
that the caller can spare first, then from the right. A table of one row becomes a line for each
column instead, which loses nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from delaylog.broker.cli.values import plain_lines, plain_name, plain_text, value_text

# ------------------------------------------------------------------------ tables that fit, pure

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


# ------------------------------------------------------------------------------------- printing

_COLOURS: Final = {
    **dict.fromkeys(("ready", "done", "created", "sound", "ok", "yes"), "green"),
    **dict.fromkeys(("leased", "running", "kept", "too_late", "warn"), "yellow"),
    **dict.fromkeys(("dead", "rejected", "failed", "unknown", "fail", "gone"), "red"),
    **dict.fromkeys(("acked", "cancelled", "replaced", "expired", "-"), "dim"),
}
"""Colours of words that say how something is."""
_NAME_WIDTH: Final = 16


def emit(members: Any) -> None:
    """Print one object as a JSON line."""
    sys.stdout.write(orjson.dumps(members).decode() + "\n")
    sys.stdout.flush()


def say(args: argparse.Namespace, members: Any, text: str) -> None:
    """Print a result: with `--json` the object, otherwise the text."""
    if args.json:
        emit(members)
    else:
        print(plain_lines(text))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    numbers: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print rows under a header, with `numbers` aligned to the right.

    `spare`: the columns that a narrow terminal leaves out first.
    """
    cells = [[plain_text(str(each)) for each in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, cells, numbers, spare)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (columns, *cells):
        padded = _padded(columns, row, widths, numbers, len)
        print("".join(map("".join, padded)).rstrip())


def print_lines(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, spare: Sequence[str] = ()
) -> None:
    """Print rows as a table on a terminal, and elsewhere their cells between tabs.

    The table leaves out columns in which every cell is empty.
    """
    if sys.stdout.isatty():
        cells = [[plain_text(str(each)) for each in row] for row in rows]
        full = [k for k in range(len(columns)) if any(row[k] for row in cells)]
        if cells:
            shown = [[row[k] for k in full] for row in cells]
            _print_rich([columns[k] for k in full], shown, (), spare)
        return
    for row in rows:
        print(columns_text(row))


def columns_text(row: Iterable[Any]) -> str:
    """Cells between tabs. An empty one is `-`, so that `awk` counts it too."""
    return "\t".join(plain_text(str(each)) or "-" for each in row)


def print_members(members: Mapping[str, Any]) -> None:
    """Print an object, a line for each member that has a value."""
    shown = {
        plain_name(name): plain_text(value_text(name, value))
        for name, value in members.items()
        if value not in (None, [], {})
    }
    _print_pairs(shown)


def _print_pairs(shown: Mapping[str, str]) -> None:
    width = max((len(name) + 1 for name in shown), default=0)
    for name, text in shown.items():
        print(f"{name:<{max(width, _NAME_WIDTH)}}{text}")


def _print_rich(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[str],
    spare: Sequence[str],
) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    console = Console()
    table = fit(columns, rows, console.width, spare, cell_len)
    if len(rows) == 1 and not table.whole:
        _print_pairs(dict(zip(columns, rows[0], strict=True)))
        return
    for row in (table.columns, *table.rows):
        line = Text(style="bold" if row is table.columns else "")
        for before, cell, after in _padded(table.columns, row, table.widths, numbers, cell_len):
            # Text, so that brackets in a message are no markup.
            line.append(before).append(cell, _COLOURS.get(cell, "")).append(after)
        line.rstrip()
        console.print(line, soft_wrap=True)
    if table.left_out:
        left = ", ".join(table.left_out)
        print(f"left out: {left} (--json has all)", file=sys.stderr)


def _padded(
    columns: Sequence[str],
    row: Sequence[str],
    widths: Sequence[int],
    numbers: Sequence[str],
    measure: Callable[[str], int],
) -> Iterator[tuple[str, str, str]]:
    """The cells of a row, each with the blanks in front of it and behind it."""
    gap = ""
    for name, text, width in zip(columns, row, widths, strict=True):
        blanks = " " * (width - measure(text))
        yield (gap + blanks, text, "") if name in numbers else (gap, text, blanks)
        gap = " " * GAP
