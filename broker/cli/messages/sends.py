"""`delaylog send`: one message, or a message for each line of standard input.

Lines are sent as soon as they have been read, a thousand a call at most. Each call has an
idempotency key, so it is repeated if its answer is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from io import BufferedReader
from itertools import chain, islice
from typing import Any, Final, cast
from uuid import uuid4

from delaylog.broker.cli.arguments import add_broker, add_option, name
from delaylog.broker.cli.connection import client_of, given, interruptible
from delaylog.broker.cli.failures import DONE, WRONG, UsageError
from delaylog.broker.cli.output import emit, print_lines
from delaylog.broker.cli.parser import add_examples
from delaylog.broker.cli.progress import Progress
from delaylog.broker.cli.values import id_text, time_text
from delaylog.contract.members import MemberError
from delaylog.contract.message_fields import (
    DELAY_MS,
    DELIVER_AT_MS,
    FIELDS,
    ID,
    pack_fields,
)

_LINES_A_CALL: Final = 1_000
_READ_BYTES: Final = 1 << 20
_PAST_MS: Final = 60_000
"""A time that is past by less is as good as `now`."""
WHEN: Final = (DELIVER_AT_MS, DELAY_MS)
_LISTED: Final = frozenset({"attempts", "result", "handed_out_ms"})
"""Members that only what the broker has says of a message."""
_LISTING: Final = (
    "standard input has messages as `delaylog list --json` prints them, and each line would be "
    "the body of a new message; nothing was sent. To send the bodies, put `jq -r .body` in between "
    "and --bodies behind `list`; to keep ids and due times, call send_many of the SDK; to send the "
    "lines themselves, put `jq -c '{line: .}'` in between"
)


def add_time(parser: argparse.ArgumentParser) -> None:
    """When messages are due."""
    when = parser.add_mutually_exclusive_group()
    for member in WHEN:
        add_option(when, member)


def say_if_past(args: argparse.Namespace) -> None:
    """Tell a person that the time was past, which is often a slip, and so the messages are due."""
    at_ms: int | None = args.deliver_at_ms
    if args.json or at_ms is None or at_ms > time.time_ns() // 1_000_000 - _PAST_MS:
        return
    print(f"delaylog: {time_text(at_ms)} is past, which means now", file=sys.stderr)


def send_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog send`."""
    add_broker(parser)
    parser.add_argument(
        "body", nargs="?", metavar="BODY", help="the body; - or none: a message for each line"
    )
    add_time(parser)
    for field in FIELDS:
        own = {"type": name} if field.member is ID else {}
        add_option(parser, field.member, **own)
    add_examples(
        parser,
        "send reminders 'pay the rent' --delay 2h",
        "send reminders 'happy new year' --at 2027-01-01T00:00 --id new-year",
        "send mails --tag bulk --ttl 1d < lines.txt",
    )


async def send_command(args: argparse.Namespace) -> int:
    """`delaylog send`: 0, or 1 if a message was rejected."""
    members = _members(args)
    one = args.body is not None and args.body != "-"
    if args.id is not None and not one:
        raise UsageError("--id needs one body, not lines of standard input")
    async with client_of(args) as client:
        if one:
            one = {**members, "body": os.fsencode(args.body)}
            sent = await client.send_many(args.topic, [one], idempotency_key=uuid4().hex)
            say_if_past(args)
            return _print_sent(sent, args)
        if sys.stdin.isatty():
            print("delaylog: a message for each line of the terminal; Ctrl-D ends", file=sys.stderr)
        # A terminal that shows a line for each message needs no progress bar.
        status = DONE
        done, quiet = 0, args.json or sys.stdout.isatty()
        parts = _lines()
        # The wait for the first line is no work.
        first = list(islice(parts, 1))
        if not first:
            raise UsageError(
                "standard input is empty, so nothing was sent: give a body, or a line for each "
                "message"
            )
        if _is_listing(first[0][0]):
            raise UsageError(_LISTING)
        with Progress("send", unit="messages", quiet=quiet) as progress:
            for part in chain(first, parts):
                many = [{**members, "body": line} for line in part]
                sent = await client.send_many(args.topic, many, idempotency_key=uuid4().hex)
                status = max(status, _print_sent(sent, args))
                done += len(sent)
                progress("", done)
    say_if_past(args)
    return status


def _members(args: argparse.Namespace) -> dict[str, Any]:
    """All members of the messages to send, except the body."""
    members = given(args, *WHEN) or {"delay_ms": 0}
    fields = given(args, *(field.member for field in FIELDS))
    try:
        # The broker packs the fields; this call only checks them.
        pack_fields(fields)
    except MemberError as error:
        raise UsageError(str(error)) from None
    return members | fields


def _is_listing(line: bytes) -> bool:
    """Whether a line is a message as `--json` of this command prints it."""
    if b'"deliver_at_ms"' not in line:
        return False
    try:
        members = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(members, dict)
        and members.keys() >= {"id", "deliver_at_ms"}
        and not _LISTED.isdisjoint(members)
    )


def _lines() -> Iterator[list[bytes]]:
    """The lines of standard input, in parts: what there is, without waiting for more."""
    left = b""
    while chunk := _read():
        *lines, left = (left + chunk).split(b"\n")
        for start in range(0, len(lines), _LINES_A_CALL):
            yield lines[start : start + _LINES_A_CALL]
    if left:
        yield [left]


def _read() -> bytes:
    with interruptible():
        return cast(BufferedReader, sys.stdin.buffer).read1(_READ_BYTES)


def _print_sent(sent: list[Any], args: argparse.Namespace) -> int:
    """Print a line for each message; return WRONG if one was rejected."""
    if args.json:
        for one in sent:
            emit({"id": one.id, "deliver_at_ms": one.deliver_at_ms, "result": one.result})
    else:
        rows = [(id_text(one.id), time_text(one.deliver_at_ms), one.result) for one in sent]
        print_lines(("id", "due", "result"), rows)
        if any(one.result == "kept" for one in sent):
            kept = "kept: a message has this id already, and stays as it was"
            print(f"delaylog: {kept}; --merge replace replaces it", file=sys.stderr)
    return WRONG if any(one.result == "rejected" for one in sent) else DONE
