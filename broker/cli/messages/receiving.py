"""`delaylog receive` and `delaylog peek`: print messages that are ready.

A receive leases the messages and leaves them to `ack`, `nack` and `extend`, which take the receipts
that it prints. Nobody else receives a message before its lease ends.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from delaylog.broker.cli.arguments import add_broker, add_examples, add_option, add_options, count
from delaylog.broker.cli.connection import call, client_of, given, say_if_absent
from delaylog.broker.cli.failing import DONE, NOTHING, UsageError
from delaylog.broker.cli.output import emit
from delaylog.broker.cli.values import id_text, plain_text, time_text
from delaylog.client.wire.json_bodies import body_of, with_body
from delaylog.client.wire.received import Delivered
from delaylog.contract.calls import shapes

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
            received = await client.receive(args.topic, **members)
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
