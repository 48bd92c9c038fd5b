"""`delaylog tail`: a line for each message that is handed out, without leasing it."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from delaylog.broker.cli.arguments import add_broker, add_examples, count
from delaylog.broker.cli.connection import call
from delaylog.broker.cli.failing import DONE
from delaylog.broker.cli.output import emit
from delaylog.broker.cli.values import plain_text, time_text
from delaylog.broker.cli.watching.topic_rows import seconds_text

WAIT_MS: Final = 10_000


def tail_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog tail`."""
    add_broker(parser)
    parser.add_argument(
        "--count", type=count, metavar="N", help="end after this number of messages"
    )
    add_examples(parser, "tail reminders", "tail reminders --json --count 100")


async def tail_command(args: argparse.Namespace) -> int:
    """`delaylog tail`."""
    after: int | None = None
    left = args.count
    while left is None or left > 0:
        # The first call only begins: a message that is handed out from then on is not missed.
        wait_ms = 0 if after is None else WAIT_MS
        answer = await call(args, "getTail", args.topic, after=after, wait_ms=wait_ms)
        if after is not None and not answer["complete"]:
            print("some hand-outs were missed", file=sys.stderr)
        after = answer["next"]
        found = answer["messages"] if left is None else answer["messages"][:left]
        for each in found:
            emit(each) if args.json else print(_line(each), flush=True)
        left = None if left is None else left - len(found)
    return DONE


def _line(each: dict[str, Any]) -> str:
    late_s = (each["handed_out_ms"] - each["deliver_at_ms"]) / 1000
    words = [
        time_text(each["handed_out_ms"]),
        each["id"],
        f"late {seconds_text(late_s)}",
        f"attempt {each['attempts']}",
        f"group {each['group']}",
        *([f"consumer {each['consumer']}"] if each["consumer"] else []),
    ]
    return plain_text("  ".join(words))
