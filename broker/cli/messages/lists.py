"""Verbs that show messages of a running broker and change nothing: list, show, dead.

Ids of the broker may be given without their `~`: zsh expands it, and a double click leaves it out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from delaylog.broker.cli.arguments import add_broker, add_option, add_options, count, name
from delaylog.broker.cli.connection import client_of, given, say_if_absent
from delaylog.broker.cli.failures import DONE, UsageError
from delaylog.broker.cli.output import columns_text, emit, print_lines, print_members
from delaylog.broker.cli.parser import add_examples
from delaylog.broker.cli.progress import Progress
from delaylog.broker.cli.values import id_text, plain_name, plain_text, time_text, value_text
from delaylog.client import AsyncPlainClient
from delaylog.client.errors import ApiError
from delaylog.client.wire.json_form import body_of
from delaylog.contract.calls import shapes
from delaylog.contract.message_fields import made_id

# ------------------------------------------------------------------------------------------ ids

Answer: TypeAlias = dict[str, Any]


async def by_id(given: str, act: Callable[[str], Awaitable[Answer]]) -> tuple[str, Answer]:
    """(id, answer) of a call about the message of an id as given. If there is none, and the id may
    be one of the broker without its `~`, the call is about that message.
    """
    made = made_id(given)
    try:
        answer = await act(given)
    except ApiError as error:
        if error.code != "unknown" or made is None:
            raise
    else:
        if answer.get("result") != "unknown" or made is None:
            return given, answer
    return made, await act(made)


# ---------------------------------------------------------------------------------------- verbs

_PAGE: Final = 1_000
LIVING: Final = ("waiting", "ready", "leased")
_COLUMNS: Final = ("id", "state", "due", "attempts", "cause", "key", "tags")
_REASON: Final = "reason"
"""A column of dead letters: what the consumer said of the last attempt. It may have spaces."""
_REASON_COLUMNS: Final = ("count", "texts", "cause", "last", "consumers", "last_id", _REASON)
_SPARE: Final = ("attempts", "tags", "key", "cause", "body")
"""What a narrow terminal leaves out first of messages."""


def _add_filter(parser: argparse.ArgumentParser) -> None:
    add_broker(parser)
    add_options(parser, shapes.LIST_DUE_FROM, shapes.LIST_DUE_TO)
    add_options(parser, shapes.WITH_TAG, shapes.WITH_KEY, shapes.GROUP)
    add_option(parser, shapes.BODIES, help="with bodies and headers")
    parser.add_argument(
        "--max",
        type=count,
        default=100,
        metavar="N",
        help="most messages; 0: all (default 100)",
    )


def list_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog list`."""
    _add_filter(parser)
    states = ", ".join(shapes.STATE.words)
    parser.add_argument(
        "--state",
        default=",".join(LIVING),
        metavar="STATE,…",
        help=f"some of {states}, or all (default: {','.join(LIVING)})",
    )
    add_examples(
        parser,
        "list reminders --due-to +1h",
        "list reminders --state dead --bodies",
        "list reminders --state all --max 0 --json",
    )


def dead_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog dead`."""
    _add_filter(parser)
    parser.add_argument(
        "--life", action="store_true", help="with the history of each message, step by step"
    )
    parser.add_argument(
        "--reasons",
        action="store_true",
        help="only how many failed for each reason; those that differ in numbers are counted "
        "together",
    )
    add_option(parser, shapes.EXACT, help="with --reasons: count each text by itself")
    add_options(parser, *shapes.FAILED)
    add_examples(
        parser,
        "dead reminders",
        "dead reminders --reasons",
        "dead reminders --reasons --exact --reason-prefix ValueError:",
        "dead reminders --due-from -1d --life --bodies",
    )


def show_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog show`."""
    add_broker(parser)
    parser.add_argument("id", type=name, metavar="ID", help="the id of the message")
    add_options(parser, shapes.GROUP, shapes.LIFE)
    add_examples(parser, "show reminders rent-2026-12", "show reminders rent-2026-12 --life")


async def list_command(args: argparse.Namespace) -> int:
    """`delaylog list`: reads page after page, up to `--max` messages."""
    state = {} if args.state == "all" else {"state": args.state}
    async with client_of(args) as client:
        return await _print_pages(client, args, "page", given(args, *_FILTER) | state)


async def dead_command(args: argparse.Namespace) -> int:
    """`delaylog dead`: as `list`, with the cause of each and, with `--life`, its history."""
    query = given(args, *_FILTER, *shapes.FAILED) | {"history": args.life}
    if args.exact and not args.reasons:
        raise UsageError("--exact needs --reasons")
    async with client_of(args) as client:
        if args.reasons:
            return await _print_reasons(client, args)
        return await _print_pages(client, args, "dead", query)


async def _print_reasons(client: AsyncPlainClient, args: argparse.Namespace) -> int:
    limit = min(args.max or _PAGE, _PAGE)
    failed = given(args, shapes.GROUP, shapes.EXACT, *shapes.FAILED)
    answer = await client.dead_reasons(args.topic, limit=limit, **failed)
    if args.json:
        emit(answer)
    else:
        _print_kinds(answer)
    if not answer["reasons"] and not answer["other"]:
        await say_if_absent(args)
    return DONE


def _print_kinds(answer: dict[str, Any]) -> None:
    print_lines(
        _REASON_COLUMNS,
        [
            [
                each["count"],
                each["texts"],
                each["cause"],
                time_text(each["last_ms"]),
                each["consumers"],
                value_text("last_id", each["last_id"]),
                each["reason"] or "",
            ]
            for each in answer["reasons"]
        ],
        spare=("consumers", "last", "texts", "last_id"),
    )
    for left, what in (("rest", "other reasons"), ("other", "no failure that is kept")):
        if answer[left]:
            print(f"{answer[left]} more have {what}")


_FILTER: Final = (
    shapes.LIST_DUE_FROM,
    shapes.LIST_DUE_TO,
    shapes.WITH_TAG,
    shapes.WITH_KEY,
    shapes.GROUP,
    shapes.BODIES,
)


async def _print_pages(
    client: AsyncPlainClient, args: argparse.Namespace, method: str, query: dict[str, Any]
) -> int:
    cursor: str | None = None
    count, most = 0, args.max or sys.maxsize
    # A terminal that shows the messages needs no progress bar.
    quiet = args.json or sys.stdout.isatty()
    with Progress(args.verb, unit="messages", quiet=quiet) as progress:
        while count < most:
            limit = min(most - count, _PAGE)
            page = await getattr(client, method)(args.topic, **query, cursor=cursor, limit=limit)
            _print_page(page["messages"], args)
            count += len(page["messages"])
            progress("", count)
            cursor = page["cursor"]
            if cursor is None:
                break
    if not count:
        await say_if_absent(args)
    return DONE


def _print_page(messages: list[dict[str, Any]], args: argparse.Namespace) -> None:
    if args.json:
        for message in messages:
            emit(message)
        return
    if args.verb == "dead" and args.life:
        for message in messages:
            print(columns_text(_cells(message, args)))
            for step in message["history"]:
                print(f"  {_step(step)}")
        return
    reasons = (_REASON,) if args.verb == "dead" else ()
    bodies = ("body",) if args.bodies else ()
    # All dead letters have one state.
    spare = ("state", *_SPARE) if args.verb == "dead" else _SPARE
    cells = [_cells(message, args) for message in messages]
    print_lines((*_COLUMNS, *reasons, *bodies), cells, spare=spare)


def _cells(message: dict[str, Any], args: argparse.Namespace) -> list[Any]:
    """The columns of a message: `_COLUMNS`, of a dead letter the reason, and perhaps the body."""
    return [
        id_text(message["id"]),
        message["state"],
        time_text(message["deliver_at_ms"]),
        message["attempts"],
        message["cause"] or "",
        message["key"] or "",
        ",".join(message["tags"]),
        *([message.get(_REASON) or ""] if args.verb == "dead" else []),
        *([_shown(message)] if args.bodies else []),
    ]


def _shown(message: dict[str, Any]) -> str:
    """A body on one line; bytes that are no text, and line ends, as escapes."""
    return plain_text(body_of(message).decode("utf-8", "backslashreplace"))


async def show_command(args: argparse.Namespace) -> int:
    """`delaylog show`: a line for each member, and with --life a line for each step."""
    async with client_of(args) as client:
        _, message = await by_id(
            args.id, lambda each: client.get(args.topic, each, life=args.life, group=args.group)
        )
    if args.json:
        emit(message)
        return DONE
    life, complete = message.pop("life", []), message.pop("life_complete", True)
    failures, waits = message.pop("failures", []), message.pop("waits", [])
    print_members(message)
    for failure in failures:
        print(_step({"event": "failed", **failure}))
    for step in life:
        print(_step(step))
    for wait in waits:
        print(_step({"event": "waited", "at_ms": wait.pop("from_ms"), **wait}))
    if not complete:
        print("some steps are missing: the log does not have them any more")
    return DONE


def _step(step: dict[str, Any]) -> str:
    """A line for a step of a message's life."""
    rest = " ".join(
        f"{plain_name(key)}={value_text(key, value)}"
        for key, value in step.items()
        if key not in ("event", "at_ms") and value is not None
    )
    at = time_text(step["at_ms"]) if step["at_ms"] else "?"
    return plain_text(f"{at:<30}{step['event']:<16}{rest}".rstrip())
