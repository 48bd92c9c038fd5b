"""Verbs that call a running broker: send, receive, stats, topics, clock, reload."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import orjson

from delaylog.broker.cli.failing import DONE, NOTHING, WRONG
from delaylog.broker.cli.progress import Progress
from delaylog.broker.host.settings.options import ConfigError
from delaylog.client import AsyncPlainClient
from delaylog.client.models import Delivered, with_body
from delaylog.client.options import ConnectionOptions
from delaylog.storage.calls.shapes import NEW_DELAY_MS, RECEIVE
from delaylog.storage.errors import MemberError
from delaylog.storage.messages.members import Member
from delaylog.storage.messages.message_fields import (
    BY_NAME,
    DELIVER_AT_MS,
    FIELDS,
    from_text,
    pack_fields,
)

_LINES_A_CALL = 1_000
WHEN: Final = (DELIVER_AT_MS, NEW_DELAY_MS)


def emit(members: Any) -> None:
    sys.stdout.write(orjson.dumps(members).decode() + "\n")
    sys.stdout.flush()


def client_of(args: argparse.Namespace) -> AsyncPlainClient:
    """A client of the broker at `--url`. CredentialsError for options that cannot be used."""
    return AsyncPlainClient(args.url, **connection_of(args))


def connection_of(args: argparse.Namespace) -> ConnectionOptions:
    """The options of the connection; the environment gives those that are absent."""
    return {
        "token": _first_line() if args.token else None,
        "token_file": args.token_file,
        "ca_file": args.ca_file,
        "client_cert": args.client_cert,
        "client_key": args.client_key,
        "insecure_plain_token": args.insecure_plain_token,
    }


def _first_line() -> str:
    """The token for `--token -`. What follows it on standard input is left to the verb."""
    if sys.stdin.isatty():
        return getpass.getpass("token: ")
    return sys.stdin.buffer.readline().decode("latin-1").strip()


def given(args: argparse.Namespace, *members: Member[Any]) -> dict[str, Any]:
    """The members of a call that the command line gives."""
    values = {member.name: getattr(args, member.name, None) for member in members}
    return {name: value for name, value in values.items() if value is not None}


def _members(args: argparse.Namespace) -> dict[str, Any]:
    """All members of the messages to send, except the body."""
    members = given(args, *WHEN) or {"delay_ms": 0}
    try:
        said = given(args, *(field.member for field in FIELDS))
        fields = {
            name: from_text(BY_NAME[name], value) if isinstance(value, str) else value
            for name, value in said.items()
        }
        # The broker packs the fields; this call only checks them.
        pack_fields(fields)
    except MemberError as error:
        raise ConfigError(str(error)) from None
    return members | fields


def _lines() -> Iterator[list[bytes]]:
    part: list[bytes] = []
    for line in sys.stdin.buffer:
        part.append(line.rstrip(b"\n"))
        if len(part) == _LINES_A_CALL:
            yield part
            part = []
    if part:
        yield part


async def send_command(args: argparse.Namespace) -> int:
    """`delaylog send`."""
    members = _members(args)
    one = args.body is not None and args.body != "-"
    if args.id is not None and not one:
        raise ConfigError("--id needs one body, not lines of standard input")
    async with client_of(args) as client:
        if one:
            sent = await client.send_many(args.topic, [{**members, "body": os.fsencode(args.body)}])
            return _print_sent(sent, args)
        # A terminal that shows a line for each message needs no progress bar.
        status = DONE
        done, quiet = 0, args.json or sys.stdout.isatty()
        with Progress("send", unit="messages", quiet=quiet) as progress:
            for part in _lines():
                sent = await client.send_many(
                    args.topic, [{**members, "body": line} for line in part]
                )
                status = max(status, _print_sent(sent, args))
                done += len(sent)
                progress("", done)
    return status


def _print_sent(sent: list[Any], args: argparse.Namespace) -> int:
    """Print a line for each message; return WRONG if one was rejected."""
    for one in sent:
        if args.json:
            emit({"id": one.id, "deliver_at_ms": one.deliver_at_ms, "result": one.result})
        else:
            print(one.id, one.deliver_at_ms, one.result)
    return WRONG if any(one.result == "rejected" for one in sent) else DONE


async def receive_command(args: argparse.Namespace) -> int:
    """`delaylog receive`: 0, or 3 when there was no message."""
    members = given(args, *RECEIVE.members)
    if args.tags_mode and not args.tags:
        raise ConfigError("--all-tags needs --tag")
    async with client_of(args) as client:
        while True:
            received = await client.receive(args.topic, **members)
            for message in received.messages:
                _print_message(message, args)
            if received.messages and not args.no_ack:
                await client.ack(args.topic, [m.receipt for m in received.messages])
            if not args.follow:
                return DONE if received.messages else NOTHING


def _print_message(message: Delivered, args: argparse.Namespace) -> None:
    if args.json:
        shape = {
            "id": message.id,
            "receipt": message.receipt,
            "deliver_at_ms": message.deliver_at_ms,
            "attempts": message.attempts,
        }
        emit(with_body(shape, message.body))
    else:
        sys.stdout.buffer.write(message.body + b"\n")
        sys.stdout.buffer.flush()


async def _all_topics(client: AsyncPlainClient) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        answer = await client.topics(cursor=cursor)
        rows += answer["topics"]
        cursor = answer.get("cursor")
        if cursor is None:
            return rows


async def stats_command(args: argparse.Namespace) -> int:
    """`delaylog stats`."""
    if args.group is not None and args.topic is None:
        raise ConfigError("--group needs a topic")
    async with client_of(args) as client:
        if args.topic is not None:
            rows = [await client.stats(args.topic, group=args.group)]
        else:
            rows = await _all_topics(client)
    if args.json:
        for row in rows:
            emit(row)
        return 0
    states = ("waiting", "ready", "leased", "acked", "expired", "dead", "deleted")
    print(f"{'topic':<24}" + "".join(f"{name:>12}" for name in states))
    for row in rows:
        print(f"{row['topic']:<24}" + "".join(f"{row['counts'][name]:>12}" for name in states))
    return 0


async def topics_command(args: argparse.Namespace) -> int:
    """`delaylog topics`."""
    async with client_of(args) as client:
        rows = await _all_topics(client)
    for row in rows:
        if args.json:
            emit(row)
        else:
            settings = " ".join(f"{name}={value}" for name, value in row["settings"].items())
            print(row["topic"], settings)
    return 0


async def clock_command(args: argparse.Namespace) -> int:
    """`delaylog clock`."""
    async with client_of(args) as client:
        shown = await client.clock(accept=args.accept)
    if args.json:
        emit(shown)
        return 0
    if "accepted_ms" in shown:
        print(f"the broker's time changed by {shown['accepted_ms']} ms")
    print(f"broker {shown['now_ms']} wall {shown['wall_ms']} held {shown['held_ms']} ms")
    return 0


async def reload_command(args: argparse.Namespace) -> int:
    """`delaylog reload`."""
    async with client_of(args) as client:
        shown = await client.reload()
    if args.json:
        emit(shown)
    else:
        print(f"read again: {', '.join(shown['reloaded']) or 'nothing is configured'}")
    return 0
