"""Verbs that show topics and change nothing: topics, stats."""

from __future__ import annotations

import argparse
from typing import Any, Final

from delaylog.broker.cli.arguments import add_broker, add_examples, add_options
from delaylog.broker.cli.called import COUNTS, print_rows
from delaylog.broker.cli.connection import call, given
from delaylog.broker.cli.failing import DONE, UsageError
from delaylog.broker.cli.output import emit, print_lines
from delaylog.broker.cli.values import plain_name, value_text
from delaylog.storage.calls import shapes

_STATES: Final = ("paused", "erasing")


def topics_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog topics`."""
    add_broker(parser, topic=None)
    add_options(parser, shapes.PREFIX)
    add_examples(parser, "topics", "topics --prefix orders. --json")


def stats_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog stats`."""
    add_broker(parser, topic="?")
    add_options(parser, shapes.GROUP)
    add_examples(parser, "stats", "stats reminders --group mail --json")


async def topics_command(args: argparse.Namespace) -> int:
    """`delaylog topics`."""
    rows = await all_topics(args, **given(args, shapes.PREFIX))
    if args.json:
        for row in rows:
            emit(row)
        return DONE
    words = [
        (row["topic"], " ".join(each for each in _STATES if row[each]), settings_text(row))
        for row in rows
    ]
    plain = (" ".join(filter(None, each)) for each in words)
    print_lines(("topic", "state", "settings"), words, plain=plain)
    return DONE


def settings_text(row: dict[str, Any]) -> str:
    """The settings of a topic on one line."""
    return " ".join(
        f"{plain_name(name)}={value_text(name, value)}" for name, value in row["settings"].items()
    )


async def all_topics(args: argparse.Namespace, **query: Any) -> list[dict[str, Any]]:
    """All topics of the namespace, page after page."""
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        answer = await call(args, "listTopics", cursor=cursor, **query)
        rows += answer["topics"]
        cursor = answer.get("cursor")
        if cursor is None:
            return rows


async def stats_command(args: argparse.Namespace) -> int:
    """`delaylog stats`."""
    if args.group is not None and args.topic is None:
        raise UsageError("--group needs a topic")
    if args.topic is None:
        rows = await all_topics(args)
    else:
        rows = [await call(args, "getStats", args.topic, group=args.group)]
    columns: tuple[str, ...] = ("topic", *COUNTS)
    if args.topic is not None:
        columns += ("oldest_due_ms", "sent", "delivered")
    print_rows(args, rows, columns)
    return DONE
