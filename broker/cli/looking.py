"""Verbs that show messages of a running broker and change nothing."""

from __future__ import annotations

import argparse
from typing import Any, Final

from delaylog.broker.cli.failing import DONE
from delaylog.broker.cli.remote import client_of, emit, given
from delaylog.storage.calls.shapes import LIST

_PAGE: Final = 1_000


async def list_command(args: argparse.Namespace) -> int:
    """`delaylog list`: reads page after page, up to `--max` messages."""
    query = given(args, *LIST)
    cursor: str | None = None
    left: int = args.max
    async with client_of(args) as client:
        while True:
            limit = min(left, _PAGE) if args.max else _PAGE
            page = await client.page(args.topic, **query, cursor=cursor, limit=limit)
            for message in page["messages"]:
                _print_line(message, args)
            left -= len(page["messages"])
            cursor = page["cursor"]
            if cursor is None or (args.max and left <= 0):
                return DONE


def _print_line(message: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        emit(message)
        return
    words = [message["id"], message["state"], str(message["deliver_at_ms"])]
    words.append(f"attempts={message['attempts']}")
    words += [f"{name}={message[name]}" for name in ("cause", "key") if message[name]]
    if message["tags"]:
        words.append(f"tags={','.join(message['tags'])}")
    print(*words)


async def show_command(args: argparse.Namespace) -> int:
    """`delaylog show`: a line for each member, and with --life a line for each step."""
    async with client_of(args) as client:
        message = await client.get(args.topic, args.id, life=args.life, group=args.group)
    if args.json:
        emit(message)
        return DONE
    life, complete = message.pop("life", []), message.pop("life_complete", True)
    for name, value in message.items():
        if value not in (None, [], {}):
            print(f"{name:<16}{value}")
    for step in life:
        rest = " ".join(f"{k}={v}" for k, v in step.items() if k not in ("event", "at_ms"))
        print(f"{step['at_ms'] or '?':<16}{step['event']:<16}{rest}".rstrip())
    if not complete:
        print("some steps are missing: the log does not have them any more")
    return DONE
