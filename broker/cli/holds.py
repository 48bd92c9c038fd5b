"""`delaylog hold`, and `delaylog resume` of a topic or of a held broker."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from delaylog.broker.cli.arguments import add_broker, add_examples, add_option, name
from delaylog.broker.cli.connection import call, given
from delaylog.broker.cli.failing import DONE, UsageError
from delaylog.broker.cli.output import say
from delaylog.broker.cli.values import time_text
from delaylog.contract.calls import shapes


def hold_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog hold`."""
    add_broker(parser, topic=None, namespace=False)
    add_option(parser, shapes.HOLD_NOTE)
    add_examples(parser, "hold", "hold --note 'a copy of production'")


async def hold_command(args: argparse.Namespace) -> int:
    """`delaylog hold`."""
    shown = await call(args, "putHold", **given(args, shapes.HOLD_NOTE))
    say(args, shown, _text(shown))
    return DONE


def resume_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog resume`."""
    add_broker(parser, topic=None)
    parser.add_argument(
        "topic",
        type=name,
        nargs="?",
        metavar="TOPIC",
        help="the topic, if `delaylog pause` has paused it; without it, a held broker is released",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only show what a release of the broker would set going",
    )
    add_examples(parser, "resume --dry-run", "resume", "resume reminders")


async def resume_command(args: argparse.Namespace) -> int:
    """`delaylog resume`."""
    if args.topic is not None:
        if args.dry_run:
            raise UsageError("--dry-run is for a held broker: leave out the topic")
        answer = {"topic": args.topic, **await call(args, "resume", args.topic)}
        say(args, answer, f"{args.topic} resumed")
        return DONE
    shown = await call(args, "getHold" if args.dry_run else "releaseHold")
    say(
        args,
        shown,
        f"released: {_counts(shown)}" if shown.get("result") == "done" else _text(shown),
    )
    return DONE


def _text(shown: Mapping[str, Any]) -> str:
    if not shown["held"]:
        return "the broker is not held"
    note = f" ({shown['note']})" if shown["note"] else ""
    return f"held since {time_text(shown['since_ms'])}{note}: {_counts(shown)}"


def _counts(shown: Mapping[str, Any]) -> str:
    least = "at least " if shown["partial"] else ""
    return (
        f"{shown['due']:,} messages are due, {shown['pushes']:,} of them for push targets; "
        f"{least}{shown['firings']:,} firings of schedules"
    )
