"""Verbs about leases: `delaylog receive`, `peek`, `ack`, `nack`, `reject` and `extend`.

`receive` and `peek` print messages that are ready. A receive leases the messages and leaves them to
`ack`, `nack` and `extend`, which take the receipts that it prints. Nobody else receives a message
before its lease ends.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from delaylog.broker.cli.arguments import add_broker, add_option, add_options, count, name
from delaylog.broker.cli.connection import call, client_of, given, in_spans, say_if_absent
from delaylog.broker.cli.failures import DONE, NOTHING, WRONG, UsageError
from delaylog.broker.cli.output import emit, print_lines
from delaylog.broker.cli.parser import add_examples
from delaylog.broker.cli.values import id_text, plain_text, time_text
from delaylog.client.wire.json_form import Delivered, body_of, with_body
from delaylog.contract.calls import shapes
from delaylog.contract.message_fields import made_id

# ----------------------------------------------------------------------------- receive and peek

FOLLOW_WAIT_MS: Final = 20_000
_PEEKED: Final = (shapes.MAX, shapes.GROUP, shapes.WANTED_TAGS, shapes.TAGS_MODE)


def _add_filter(parser: argparse.ArgumentParser) -> None:
    """Which messages."""
    add_option(parser, shapes.MAX, type=count, default=1, help="at most this many (default 1)")
    add_options(parser, shapes.GROUP)
    add_option(parser, shapes.WANTED_TAGS, help="only with this tag; may be given again")
    add_option(parser, shapes.TAGS_MODE, help="with any of the tags (the default), or with all")
    parser.add_argument(
        "--bodies-only", action="store_true", help="print bodies, each on its line, nothing else"
    )


def receive_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog receive`."""
    add_broker(parser)
    _add_filter(parser)
    waits = "how long to wait for a message (default 0; with --follow 20s)"
    add_option(parser, shapes.WAIT_MS, help=waits)
    add_options(parser, shapes.LEASE_MS)
    parser.add_argument(
        "--ack", action="store_true", help="acknowledge the messages once they are printed"
    )
    parser.add_argument("--follow", action="store_true", help="go on until interrupted")
    add_examples(
        parser,
        "receive reminders --wait 20s",
        "receive reminders --max 10 --lease 5m --json",
        "receive reminders --follow --ack --bodies-only",
    )


def peek_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog peek`."""
    add_broker(parser)
    _add_filter(parser)
    add_examples(parser, "peek reminders --max 10", "peek reminders --tag rent --json")


async def receive_command(args: argparse.Namespace) -> int:
    """`delaylog receive`: 0, or 3 when there was no message."""
    _check(args)
    members = asked(args)
    async with client_of(args) as client:
        while True:
            received = await client.receive(args.topic, **in_spans(members))
            for message in received.messages:
                _print_leased(message, args)
            if received.messages and args.ack:
                await client.ack(args.topic, [each.receipt for each in received.messages])
            if not args.follow:
                break
    if not received.messages:
        await say_if_absent(args)
    return DONE if received.messages else NOTHING


def asked(args: argparse.Namespace) -> dict[str, Any]:
    """The members of a receive. One that is repeated waits, so that it does not spin."""
    members = given(args, *shapes.RECEIVE.members)
    if args.follow and not args.wait_ms:
        members["wait_ms"] = FOLLOW_WAIT_MS
    return members


async def peek_command(args: argparse.Namespace) -> int:
    """`delaylog peek`: 0, or 3 when there was no message."""
    _check(args)
    answer = await call(args, "peek", args.topic, **given(args, *_PEEKED))
    if not answer["messages"]:
        await say_if_absent(args)
    for message in answer["messages"]:
        if args.json:
            emit(message)
        else:
            _print_line(_words(message), body_of(message), args)
    return DONE if answer["messages"] else NOTHING


def _check(args: argparse.Namespace) -> None:
    if args.tags_mode and not args.tags:
        raise UsageError("--tags-mode needs --tag")
    if args.json and args.bodies_only:
        raise UsageError("give either --json or --bodies-only: JSON has the bodies")


def _print_leased(message: Delivered, args: argparse.Namespace) -> None:
    shape = {
        "id": message.id,
        "receipt": message.receipt,
        "deliver_at_ms": message.deliver_at_ms,
        "attempts": message.attempts,
    }
    if args.json:
        emit(with_body(shape, message.body))
    else:
        _print_line(_words(shape), message.body, args)


def _words(message: dict[str, Any]) -> list[str]:
    """The columns before the body."""
    receipt = [message["receipt"]] if "receipt" in message else []
    return [
        id_text(message["id"]),
        *receipt,
        time_text(message["deliver_at_ms"]),
        str(message["attempts"]),
    ]


def _print_line(words: list[str], body: bytes, args: argparse.Namespace) -> None:
    """Print the body as it is, since another program may read it; on a terminal in one line."""
    if sys.stdout.isatty():
        body = plain_text(body.decode("utf-8", "backslashreplace")).encode()
    front = b"" if args.bodies_only else ("\t".join(words) + "\t").encode()
    sys.stdout.flush()
    sys.stdout.buffer.write(front + body + b"\n")
    sys.stdout.buffer.flush()


# --------------------------------------------------------- what becomes of messages under lease

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
