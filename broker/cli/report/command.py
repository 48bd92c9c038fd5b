"""`delaylog report`: reads the file of minutes of a data folder, and writes the page.

The folder may be in use: the file is only read.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Final

from delaylog.broker.cli.arguments import add_examples, add_json, complete_files, span
from delaylog.broker.cli.failing import DONE, UsageError
from delaylog.broker.cli.output import say
from delaylog.broker.cli.parser import complete_folders
from delaylog.broker.cli.report.analysis import Window
from delaylog.broker.cli.report.page import page
from delaylog.broker.engine.watch.lateness import BOUNDS_MS
from delaylog.broker.host.metrics.minutes import FILE, MINUTE_MS, SLOTS, read_rows
from delaylog.broker.host.settings.options import read_sources
from delaylog.storage.files.file_system import FILE_MODE

DAY_MS: Final = 86_400_000
KEPT_MS: Final = SLOTS * MINUTE_MS
WRITTEN_MS: Final = 5_000
"""Within this time after its end the row of a minute is in the file."""


def report_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog report`."""
    complete_folders(
        parser.add_argument(
            "folder",
            nargs="?",
            metavar="FOLDER",
            help="the data folder, also one in use (default: that of the settings of `serve`)",
        )
    )
    parser.add_argument(
        "--since",
        type=span,
        default=DAY_MS,
        metavar="TIME",
        help="how far back, at most 7d (default 24h)",
    )
    parser.add_argument(
        "--late",
        type=span,
        default=100,
        metavar="TIME",
        help="the objective: later than this is late (default 100ms)",
    )
    complete_files(
        parser.add_argument(
            "--out", default="delaylog-report.html", metavar="FILE", help="the page to write"
        )
    )
    add_json(parser)
    add_examples(
        parser, "report --since 24h", "report ./delaylog-data --since 6h --out report.html"
    )


def report_command(args: argparse.Namespace) -> int:
    """`delaylog report`."""
    if args.late not in BOUNDS_MS:
        bounds = ", ".join(f"{bound}ms" for bound in BOUNDS_MS)
        raise UsageError(f"--late {args.late}ms is no bound that is counted; use one of {bounds}")
    if not MINUTE_MS <= args.since <= KEPT_MS:
        raise UsageError("--since is from 1m to 7d, for which minutes are kept")
    folder = read_sources({"data_dir": args.folder}, os.environ).values["data_dir"]
    now_ms = time.time_ns() // 1_000_000
    # The row of a minute is written when it has ended.
    end = (now_ms - WRITTEN_MS) // MINUTE_MS
    first = (now_ms - args.since) // MINUTE_MS
    try:
        known = read_rows(folder, 0, now_ms // MINUTE_MS + 1)
    except FileNotFoundError:
        raise UsageError(
            f"{folder} has no file {FILE!r}: a broker makes it within a minute"
        ) from None
    rows = [row for row in known if row.minute >= first]
    if rows and rows == known:
        # Before its first row there was no broker.
        first = rows[0].minute
    window = Window(first, max(end, rows[-1].minute + 1 if rows else first + 1))
    text = page(rows, f"delaylog: {folder}", args.late, window)
    # Names of topics and ids of messages are in it, as in the data folder: only its owner reads it.
    fd = os.open(args.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    members = {"file": args.out, "minutes": len(rows)}
    why = "" if rows else ": there are no figures of that time, give a longer --since"
    say(args, members, f"{args.out}: {len(rows)} minutes{why}")
    return DONE
