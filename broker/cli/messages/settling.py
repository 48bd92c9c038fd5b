"""`delaylog ack`, `nack`, `reject` and `extend`: what becomes of messages under lease."""

from __future__ import annotations

import argparse
from typing import Final

from delaylog.broker.cli.arguments import add_broker, add_examples, add_option, add_options, name
from delaylog.broker.cli.connection import call, given
from delaylog.broker.cli.failing import DONE, WRONG
from delaylog.broker.cli.output import emit, print_lines
from delaylog.broker.cli.values import id_text
from delaylog.contract.calls import shapes
from delaylog.contract.message_fields import made_id

_REASON: Final = "why the attempt failed; `dead` and `show` print it"


def _add_receipts(parser: argparse.ArgumentParser) -> None:
    add_broker(parser)
    parser.add_argument(
        "receipts",
        nargs="+",
        type=name,
        metavar="RECEIPT",
        help="receipts of `delaylog receive`; with --by-id ids",
    )
    parser.add_argument(
        "--by-id", action="store_true", help="by ids instead, whichever consumer has the leases"
    )
    add_options(parser, shapes.GROUP)


def ack_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog ack`."""
    _add_receipts(parser)
    add_examples(
        parser,
        "ack reminders 00000000000000010000000000000001",
        "ack reminders --by-id rent-2026-12",
    )


def nack_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog nack`."""
    _add_receipts(parser)
    how_long = "how long until the retry (default: as the message or its topic says)"
    add_option(parser, shapes.BACK_MS, help=how_long)
    add_option(parser, shapes.REASON, help=_REASON)
    add_examples(
        parser,
        "nack reminders 00000000000000010000000000000001 --delay 5m",
        "nack reminders 00000000000000010000000000000001 --reason 'no such mailbox'",
    )


def reject_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog reject`."""
    _add_receipts(parser)
    add_option(parser, shapes.REASON, help=_REASON)
    add_examples(
        parser, "reject reminders 00000000000000010000000000000001 --reason 'no such mailbox'"
    )


def extend_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog extend`."""
    _add_receipts(parser)
    how_long = "the lease from now; 0 returns the messages at once"
    add_option(parser, shapes.EXTEND_MS, required=True, help=how_long)
    add_examples(parser, "extend reminders 00000000000000010000000000000001 --lease 5m")


async def ack_command(args: argparse.Namespace) -> int:
    """`delaylog ack`: 0, or 1 if one of the messages was not settled."""
    named = "ids" if args.by_id else "receipts"
    members = given(args, shapes.BACK_MS, shapes.EXTEND_MS, shapes.REASON, shapes.GROUP)

    async def settle(texts: list[str]) -> list[tuple[str, str]]:
        answer = await call(
            args, args.verb, args.topic, force=args.by_id, **{named: texts}, **members
        )
        return list(zip(texts, answer["results"], strict=True))

    rows = await settle(args.receipts)
    if args.by_id:
        meant = {
            at: made
            for at, (text, result) in enumerate(rows)
            if result == "unknown" and (made := made_id(text))
        }
        for at, row in zip(meant, await settle([*meant.values()]) if meant else (), strict=True):
            rows[at] = row
    if args.json:
        for each, result in rows:
            emit({named.removesuffix("s"): each, "result": result})
    else:
        shown = [(id_text(each), result) for each, result in rows]
        print_lines((named.removesuffix("s"), "result"), shown)
    return DONE if all(result == "done" for _, result in rows) else WRONG


nack_command = ack_command
reject_command = ack_command
extend_command = ack_command
