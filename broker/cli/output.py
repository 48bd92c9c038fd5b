"""What verbs print: JSON lines, tables and colours on a terminal, plain lines elsewhere.

Plain lines are for pipes, such as to `cut` and `awk`: columns between tabs without a header, or a
table of counts under one. `rich` is loaded only for a terminal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

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
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Sequence[str] = ()
) -> None:
    """Print rows under a header, with `numbers` aligned to the right."""
    cells = [[plain_text(str(each)) for each in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, cells, numbers)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (columns, *cells):
        aligned = (
            text.rjust(width) if name in numbers else text.ljust(width)
            for name, text, width in zip(columns, row, widths, strict=True)
        )
        print("  ".join(aligned).rstrip())


def print_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows as a table on a terminal, and elsewhere their cells between tabs.

    The table leaves out columns in which every cell is empty: a terminal may be narrow.
    """
    if sys.stdout.isatty():
        cells = [[plain_text(str(each)) for each in row] for row in rows]
        full = [k for k in range(len(columns)) if any(row[k] for row in cells)]
        if cells:
            shown = [[row[k] for k in full] for row in cells]
            _print_rich([columns[k] for k in full], shown, ())
        return
    for row in rows:
        print(columns_text(row))


def columns_text(row: Iterable[Any]) -> str:
    """Cells between tabs. An empty one is `-`, so that `awk` counts it too."""
    return "\t".join(plain_text(str(each)) or "-" for each in row)


def print_members(members: Mapping[str, Any]) -> None:
    """Print an object, a line for each member that has a value."""
    width = max((len(name) for name in members), default=0)
    for name, value in members.items():
        if value not in (None, [], {}):
            shown = plain_text(value_text(name, value))
            print(f"{plain_name(name):<{max(width, _NAME_WIDTH)}}{shown}")


def _print_rich(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        # Text, so that brackets in a message are no markup.
        table.add_row(*(Text(cell, _COLOURS.get(cell, "")) for cell in row))
    Console().print(table)
