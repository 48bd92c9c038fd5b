"""`delaylog check`: checks recorded histories."""

from __future__ import annotations

import argparse
from pathlib import Path

from delaylog.broker.cli.arguments import span
from delaylog.broker.cli.parser import add_examples, add_json, complete_files
from delaylog.broker.cli.progress import Progress
from delaylog.broker.history.command import run_check
from delaylog.broker.history.report import RULES
from delaylog.broker.rules.schedules import instants_of


def check_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog check`."""
    complete_files(
        parser.add_argument(
            "history", nargs="+", type=Path, metavar="HISTORY", help="JSON-lines files"
        )
    )
    parser.add_argument(
        "--bound",
        type=span,
        default=5_000,
        metavar="DURATION",
        help="most lateness that is allowed (default 5s)",
    )
    parser.add_argument(
        "--rules", default="", metavar="A,B,…", help="letters of rules (default: all)"
    )
    add_json(parser)
    add_examples(parser, "check history.jsonl", "check history.jsonl --rules A,B --bound 30s")


def check_command(args: argparse.Namespace) -> int:
    """`delaylog check`: 0 if the history breaks no rule, 1 if it breaks one, 2 if unreadable."""
    rules = [letter.strip().upper() for letter in args.rules.split(",") if letter.strip()]
    return run_check(
        args.history,
        bound_ms=args.bound,
        as_json=args.json,
        rules=rules or RULES,
        instants=instants_of,
        progress=Progress("check", unit="lines", quiet=args.json),
    )
