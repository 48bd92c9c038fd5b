"""`delaylog schedule`: recurring schedules, each action one call of the table of calls."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delaylog.broker.cli.arguments import moment
from delaylog.broker.cli.call_verbs import Called, carry_out, declare
from delaylog.broker.cli.connection import say_if_absent
from delaylog.broker.cli.failures import UsageError
from delaylog.broker.cli.values import id_text, is_local, parse_time, time_text

_LISTED: Final = (
    "schedule",
    "state",
    "cron",
    "interval_ms",
    "rrule",
    "zone",
    "next_ms",
    "n",
    "note",
)
_FIRINGS: Final = ("local", "instant_ms", "due_ms", "change")

_OF_ZONE: Final = "without an offset it is of --zone, if that is given"
_HELPS: Final = (
    ("interval_ms", "elapsed time between instants, from --start"),
    ("rrule", "a recurrence rule (RFC 5545), from --start; local time"),
    ("zone", "zone of --cron and --rrule, such as Europe/Berlin (default: UTC)"),
    ("start_ms", f"no instant is before this time; {_OF_ZONE}"),
    ("end_ms", f"instants are before this time; {_OF_ZONE}"),
    ("body", "the body of each message"),
    ("body_base64", "the body, if it is not text"),
)


def _time(text: str) -> int | str:
    """A time; one without an offset stays as it is, until the zone is known."""
    at_ms = moment(text)
    return text if is_local(text) else at_ms


_READERS: Final = (("start_ms", _time), ("end_ms", _time))


def _backfilled(answer: Mapping[str, Any]) -> str:
    rest = answer["next_from_ms"]
    more = "" if rest is None else f"; the rest begins at {time_text(rest)}: call it again"
    return f"{answer['instants']} instants of {answer['schedule']}{more}"


ACTIONS: Final[Mapping[str, Called]] = {
    "put": Called(
        "putSchedule",
        "create a schedule, or replace it",
        (
            "schedule put reminders digest --cron '0 9 * * 1-5' --zone Europe/Berlin --body '{}'",
            "schedule put reminders probe --interval 30s --overlap skip --body ping",
        ),
        helps=_HELPS,
        readers=_READERS,
    ),
    "change": Called(
        "updateSchedule",
        "change some members of a schedule",
        (
            "schedule change reminders digest --cron '0 8 * * 1-5'",
            "schedule change reminders digest --unset end --unset count",
        ),
        helps=_HELPS,
        readers=_READERS,
    ),
    "show": Called(
        "getSchedule",
        "show a schedule, what it means and when it fires next",
        ("schedule show reminders digest",),
    ),
    "list": Called(
        "listSchedules",
        "list the schedules of a topic, or those of all topics that fire next",
        ("schedule list reminders", "schedule list --limit 10 --json"),
        rows="schedules",
        columns=_LISTED,
        spare=("namespace", "note", "n", "zone", "rrule", "interval"),
        everywhere="listAllSchedules",
    ),
    "pause": Called(
        "pauseSchedule",
        "fire nothing until the schedule is resumed",
        ("schedule pause reminders digest --note 'until the office is open again'",),
        text="{schedule} is paused".format_map,
    ),
    "resume": Called(
        "resumeSchedule",
        "fire again, from the first instant from now on",
        ("schedule resume reminders digest",),
        text="{schedule} is {state}".format_map,
    ),
    "run": Called(
        "runSchedule",
        "fire once at once, also while paused; prints the id of the message",
        ("schedule run reminders digest",),
        text=lambda answer: id_text(answer["id"]),
    ),
    "backfill": Called(
        "backfillSchedule",
        "send messages for instants of the past, at a rate",
        ("schedule backfill reminders digest --from 2026-11-01 --until 2026-11-15 --rate 10",),
        helps=(
            ("from_ms", "instants from this time on"),
            ("until_ms", "instants before this time (default: now)"),
        ),
        text=_backfilled,
    ),
    "preview": Called(
        "previewSchedule",
        "show the next firings of a schedule, with what clock changes do to them",
        (
            "schedule preview reminders digest --n 5",
            "schedule preview reminders digest --from 2027-03-20 --until 2027-04-01",
        ),
        helps=(("from_ms", "from this time on (default: now)"), ("until_ms", "before this time")),
        rows="firings",
        columns=_FIRINGS,
        spare=("due",),
    ),
    "try": Called(
        "trySchedule",
        "show the firings that a schedule would have; nothing is stored",
        (
            "schedule try reminders digest --cron '30 2 * * *' --zone Europe/Berlin --n 3",
            "schedule try reminders digest --from quartz --cron '0 0 9 ? * 2-6'",
        ),
        rows="firings",
        columns=_FIRINGS,
        spare=("due",),
        helps=_HELPS,
        readers=_READERS,
    ),
    "drop": Called(
        "deleteSchedule",
        "drop a schedule; messages that it has sent stay",
        ("schedule drop reminders digest",),
        text="{schedule} dropped".format_map,
    ),
}


def schedule_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog schedule`."""
    declare(parser, ACTIONS)


async def schedule_command(args: argparse.Namespace) -> int:
    """`delaylog schedule`."""
    local = False
    for name, _ in _READERS:
        text = getattr(args, name, None)
        if isinstance(text, str):
            setattr(args, name, moment(text) if args.zone is None else _in_zone(text, args.zone))
            local = True
    if local and args.interval_ms is not None:
        # An interval itself has no zone.
        args.zone = None
    if args.action == "list" and args.topic is not None:
        await say_if_absent(args)
    return await carry_out(ACTIONS[args.action], args)


def _in_zone(text: str, zone: str) -> int:
    try:
        # No text that counts from now.
        return parse_time(text, 0, ZoneInfo(zone))
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise UsageError(
            f"{zone!r} is no zone of this machine: correct --zone, or write {text} with its offset "
            "from UTC"
        ) from None
