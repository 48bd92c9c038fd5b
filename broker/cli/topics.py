"""`delaylog topics`, `stats`, `forecast`, and `topic show|set|drop`.

Verbs that only print the answer of a call are rows of `call_verbs`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

from delaylog.broker.cli.arguments import add_broker, add_option, add_options, count
from delaylog.broker.cli.call_verbs import COUNTS, print_rows
from delaylog.broker.cli.connection import call, given, listed, say_if_absent
from delaylog.broker.cli.failures import DONE, UsageError
from delaylog.broker.cli.output import emit, print_lines, print_members, print_table, say
from delaylog.broker.cli.parser import add_action, add_actions, add_examples
from delaylog.broker.cli.values import bar, plain_name, span_text, time_text, value_text
from delaylog.client.errors import NotFound
from delaylog.contract.calls import shapes
from delaylog.contract.calls.shapes import DROP_FORCE, HOURS_MAX, SETTINGS
from delaylog.contract.members import Flag

# ------------------------------------------------------------------------- counts and forecasts

PLOT_WIDTH: Final = 24
"""Columns of the longest bar of a plot: what an eighty-column terminal has beside the table."""
_HOUR_MS: Final = 3_600_000
_DAY_HOURS: Final = 24
_STATES: Final = ("paused", "erasing")
_SETTINGS: Final = ("order", "max_retry", "lease_ms", "ttl_ms", "dead_keep_ms")
"""Those that `topics` shows; `topic show` shows all."""


def topics_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog topics`."""
    add_broker(parser, topic=None)
    add_options(parser, shapes.PREFIX, shapes.CONTAINS)
    add_examples(parser, "topics", "topics --prefix orders. --json")


def stats_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog stats`."""
    add_broker(parser, topic="?")
    add_options(parser, shapes.GROUP)
    add_examples(parser, "stats", "stats reminders --group mail --json")


def forecast_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog forecast`."""
    add_broker(parser)
    add_options(parser, shapes.GROUP)
    add_option(parser, shapes.MINUTES, type=count, help="minutes, each by itself (default 0)")
    add_option(
        parser, shapes.HOURS, type=count, help="hours, each by itself (default 24); then days"
    )
    add_examples(parser, "forecast reminders", "forecast reminders --minutes 30 --hours 0")


async def topics_command(args: argparse.Namespace) -> int:
    """`delaylog topics`."""
    query = given(args, shapes.PREFIX, shapes.CONTAINS)
    rows = await listed(args, "listTopics", "topics", **query)
    if args.json:
        for row in rows:
            emit(row)
        return DONE
    cells = [
        (
            row["topic"],
            ",".join(each for each in _STATES if row[each]),
            *(value_text(each, row["settings"][each]) for each in _SETTINGS),
        )
        for row in rows
    ]
    print_lines(("topic", "state", *map(plain_name, _SETTINGS)), cells)
    return DONE


async def stats_command(args: argparse.Namespace) -> int:
    """`delaylog stats`."""
    if args.group is not None and args.topic is None:
        raise UsageError("--group needs a topic")
    if args.topic is None:
        rows = await listed(args, "listTopics", "topics")
    else:
        rows = [await call(args, "getStats", args.topic, group=args.group)]
    columns: tuple[str, ...] = ("topic", *COUNTS)
    if args.topic is not None:
        columns += ("oldest_due_ms", "bounded_by", "sent", "delivered")
    print_rows(args, rows, columns, spare=("replaced", "cancelled", "acked"))
    if args.topic is not None and not rows[0]["sent"]:
        await say_if_absent(args)
    return DONE


async def forecast_command(args: argparse.Namespace) -> int:
    """`delaylog forecast`: a line for each minute, hour and day with messages due, or firings."""
    minutes = 0 if args.minutes is None else args.minutes
    hours = shapes.HOURS.default if args.hours is None else args.hours
    # The days after the hours are the sums of further hours.
    days = 0 if args.json else max(HOURS_MAX - hours, 0) // _DAY_HOURS
    wanted = hours + days * _DAY_HOURS
    query = given(args, shapes.GROUP) | {"minutes": minutes, "hours": wanted}
    answer = await call(args, "getForecast", args.topic, **query)
    if args.json:
        emit(answer)
    else:
        _print_forecast(answer, hours)
    slots = (*answer["minutes"], *answer["hours"])
    if not answer["later"] and not any(each["count"] or each["firings"] for each in slots):
        await say_if_absent(args)
    return DONE


def _print_forecast(answer: dict[str, Any], hours: int) -> None:
    """The minutes, `hours` hours and then days, each that has something."""
    rows: list[tuple[Any, ...]] = []
    spans = (
        (60_000, answer["minutes"]),
        (_HOUR_MS, answer["hours"][:hours]),
        (_DAY_HOURS * _HOUR_MS, _days(answer["hours"][hours:])),
    )
    for length_ms, slots in spans:
        rows += _forecast_rows(slots, span_text(length_ms), plot=sys.stdout.isatty())
    columns = ("from", "length", "count", "firings", *(("",) if sys.stdout.isatty() else ()))
    print_table(columns, rows, numbers=("count", "firings"))
    print(f"later: {answer['later']}")


def _days(hours: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sums of 24 hours each."""
    return [
        {
            "from_ms": hours[at]["from_ms"],
            **{
                name: sum(each[name] for each in hours[at : at + _DAY_HOURS])
                for name in ("count", "firings")
            },
        }
        for at in range(0, len(hours), _DAY_HOURS)
    ]


def _forecast_rows(
    spans: list[dict[str, Any]], length: str, *, plot: bool
) -> Iterator[tuple[Any, ...]]:
    """The spans in which messages become due; with `plot` also those in between, and a bar each."""
    due = [at for at, each in enumerate(spans) if each["count"] or each["firings"]]
    if not due:
        return
    most = max(each["count"] + each["firings"] for each in spans)
    for each in spans[due[0] : due[-1] + 1]:
        row = (time_text(each["from_ms"]), length, each["count"], each["firings"])
        some = each["count"] + each["firings"]
        if plot:
            yield (*row, bar(some / most, PLOT_WIDTH))
        elif some:
            yield row


# -------------------------------------------------------------------------- settings of a topic

_LIMITS: Final = ("rate_limit", "quota")
"""Settings that a topic need not have."""


def topic_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog topic`."""
    actions = add_actions(parser)
    show = add_action(actions, "show", "show a topic and its settings", "topic show reminders")
    add_broker(show)
    changing = add_action(
        actions,
        "set",
        "change settings of a topic, which is made if it does not exist; others stay",
        "topic set reminders --max-retry 5 --backoff first=1s,max=5m",
        "topic set reminders --ttl 1h --dead-keep 30d",
        "topic set reminders --rate-limit per_second=100,burst=10",
        "topic set reminders --no-rate-limit",
    )
    add_broker(changing)
    for member in SETTINGS.members:
        if isinstance(member, Flag):
            # Absent means that it stays.
            add_option(changing, member, action=argparse.BooleanOptionalAction, default=None)
        elif member.name == "lease_ms":
            add_option(changing, member, help="the lease of a receive that gives none")
        else:
            add_option(changing, member)
    for name in _LIMITS:
        changing.add_argument(
            f"--no-{name.replace('_', '-')}",
            action="append_const",
            const=name,
            dest="removed",
            help=f"remove the {name.replace('_', ' ')}",
        )
    drop = add_action(
        actions, "drop", "drop a topic that has no living messages", "topic drop reminders"
    )
    add_broker(drop)
    add_options(drop, DROP_FORCE)


async def topic_command(args: argparse.Namespace) -> int:
    """`delaylog topic`."""
    if args.action == "drop":
        await call(args, "deleteTopic", args.topic, force=args.force)
        say(args, {"topic": args.topic, "result": "done"}, f"{args.topic} dropped")
        return DONE
    if args.action == "set":
        topic = await _set(args)
    else:
        topic = await call(args, "getTopic", args.topic)
    if args.json:
        emit(topic)
    else:
        settings = topic.pop("settings")
        print_members(topic | settings)
    return DONE


async def _set(args: argparse.Namespace) -> dict[str, Any]:
    """Change the settings that are named, or make the topic with them."""
    wanted, removed = given(args, *SETTINGS.members), args.removed or ()
    if not wanted and not removed:
        raise UsageError(
            "there is nothing to set: give a setting, such as --max-retry 5; the first send makes "
            "a topic with the defaults"
        )
    try:
        return await call(args, "updateTopic", args.topic, nulls=removed, **wanted)
    except NotFound:
        return await call(args, "putTopic", args.topic, **wanted)
