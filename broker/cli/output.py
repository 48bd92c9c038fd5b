"""What verbs print: JSON lines, tables and colours on a terminal, plain lines elsewhere.

Plain lines are for pipes, such as to `cut` and `awk`: columns between tabs without a header, or a
table of counts under one. `rich` is loaded only for a terminal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from delaylog.broker.cli.tables import GAP, fit
from delaylog.broker.cli.values import plain_lines, plain_name, plain_text, value_text

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
