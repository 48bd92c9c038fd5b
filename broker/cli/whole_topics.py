"""Verbs about a topic as a whole: its groups, purge, pause and resume."""

from __future__ import annotations

import argparse
from typing import Any

from delaylog.broker.cli.failing import DONE
from delaylog.broker.cli.remote import client_of, emit, given
from delaylog.storage.calls.shapes import PURGE


async def groups_command(args: argparse.Namespace) -> int:
    """`delaylog groups list|make|drop`."""
    async with client_of(args) as client:
        if args.action == "list":
            for group in (await client.groups(args.topic))["groups"]:
                _print_group(group, args)
        elif args.action == "make":
            made = await client.put_group(args.topic, args.group, ephemeral=args.ephemeral)
            _print_group(made, args)
        else:
            dropped = await client.drop_group(args.topic, args.group)
            _say({"group": args.group, **dropped}, f"{args.group} dropped", args)
    return DONE


def _print_group(group: dict[str, Any], args: argparse.Namespace) -> None:
    words = [group["group"], *(f"{name}={count}" for name, count in group["counts"].items())]
    if group["ephemeral"]:
        words.append("ephemeral")
    _say(group, " ".join(words), args)


async def purge_command(args: argparse.Namespace) -> int:
    """`delaylog purge`: end all waiting and ready messages, by --force the leased ones too."""
    async with client_of(args) as client:
        members = given(args, *PURGE.members)
        answer = await client.purge(args.topic, **members | {"force": args.force or args.erase})
    _say({"topic": args.topic, **answer}, f"{args.topic} purged {answer['purged']}", args)
    return DONE


async def pause_command(args: argparse.Namespace) -> int:
    """`delaylog pause` stops deliveries of a topic, `delaylog resume` starts them again."""
    async with client_of(args) as client:
        act = client.pause if args.verb == "pause" else client.resume
        answer = await act(args.topic)
    _say({"topic": args.topic, **answer}, f"{args.topic} {args.verb}d", args)
    return DONE


resume_command = pause_command


def _say(members: dict[str, Any], text: str, args: argparse.Namespace) -> None:
    if args.json:
        emit(members)
    else:
        print(text)
