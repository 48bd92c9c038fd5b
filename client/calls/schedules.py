"""Calls about recurring schedules: what a topic is sent again and again, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack
from zoneinfo import ZoneInfo

from delaylog.client.calls.call import Call, Places, json_call, path_of, request
from delaylog.client.keywords import TimeLimit
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.json_form import with_body
from delaylog.client.wire.times import in_ms, split_limit, unix_ms
from delaylog.contract.times import ANCHOR_MS_MIN, UNIX_MS_MIN

Gap: TypeAlias = Literal["next", "shift", "skip"]
Fold: TypeAlias = Literal["first", "second", "both"]
CatchUp: TypeAlias = Literal["none", "latest", "all"]
Overlap: TypeAlias = Literal["allow", "skip", "buffer_one", "replace"]
Dialect: TypeAlias = Literal["aws", "quartz", "spring", "croniter", "vixie", "systemd", "ics"]
_SPANS: Final = ("interval", "jitter", "catch_up_window", "ttl")
_TIMES: Final = ("start", "end")


class RuleKeywords(TypedDict, total=False):
    """How a schedule fires. None: as the broker's defaults say."""

    gap: Gap | None
    """A time that the clocks skip: fire right after (`next`), later by what is skipped (`shift`),
    or not."""
    fold: Fold | None
    """Which pass counts for a time that the clocks repeat."""
    start: datetime | None
    start_ms: int | None
    end: datetime | None
    end_ms: int | None
    count: int | None
    jitter: timedelta | None
    catch_up: CatchUp | None
    """Which instants of an outage fire after it, if within `catch_up_window`."""
    catch_up_window: timedelta | None
    overlap: Overlap | None
    """What a firing does while the message of the last one is open."""


class TryKeywords(RuleKeywords, TimeLimit, total=False):
    """When a schedule fires: one of `cron`, `interval` and `rrule`, and how."""

    cron: str | None
    interval: timedelta | None
    rrule: str | None
    zone: str | ZoneInfo | None


class ScheduleKeywords(TryKeywords, total=False):
    """When a schedule fires, and the fields of its messages."""

    key: str | None
    tags: Sequence[str] | None
    headers: Mapping[str, str] | None
    priority: int | None
    ttl: timedelta | None
    max_retry: int | None
    backoff: Mapping[str, float] | None


class TryScheduleKeywords(ScheduleKeywords, total=False):
    """What is tried. `from_`: the scheduler that `cron` or `rrule` is a line of, which the broker
    converts; `converted` of the answer is what to put.
    """

    from_: Dialect | None


class UpdateScheduleKeywords(ScheduleKeywords, total=False):
    """What a change of a schedule names; None: back to the default, but for the body."""

    body: bytes | str


class RangeKeywords(TimeLimit, total=False):
    """Which instants a backfill or a preview is about."""

    from_: datetime | None
    from_ms: int | None
    until: datetime | None
    until_ms: int | None


def schedules(
    places: Places,
    /,
    topic: str,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Return a page of the schedules of a topic, in no particular order, after `cursor`."""
    return request("listSchedules", places, topic, limit=limit, cursor=cursor, limits=limits)


def schedule(
    places: Places, /, topic: str, schedule: str, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Return a schedule: its members, what they mean, and when it fires next. Raises NotFound."""
    return request("getSchedule", places, topic, schedule, limits=limits)


def put_schedule(
    places: Places,
    /,
    topic: str,
    schedule: str,
    body: bytes | str,
    **said: Unpack[ScheduleKeywords],
) -> Call[dict[str, Any]]:
    """Create a schedule, or replace it; an equal one stays as it is. `interval` and `rrule` count
    from `start`, which is the time of the first call if it is absent.
    """
    check_keywords("put_schedule", said, ScheduleKeywords)
    limit_s, members = _members(said)
    return request(
        "putSchedule", places, topic, schedule, limit_s=limit_s, **_body(body), **members
    )


def update_schedule(
    places: Places, /, topic: str, schedule: str, **said: Unpack[UpdateScheduleKeywords]
) -> Call[dict[str, Any]]:
    """Change what is named of a schedule, and nothing else; None: back to the default. Another form
    of timing replaces the present one. Raises NotFound.
    """
    check_keywords("update_schedule", said, UpdateScheduleKeywords)
    # Not `request`, which leaves None out.
    limit_s, members = _members(said)
    if "body" in members:
        members |= _body(members.pop("body"))
    path = path_of("updateSchedule", places, topic, schedule)
    return json_call("PATCH", path, members, limit_s=limit_s)


def drop_schedule(
    places: Places, /, topic: str, schedule: str, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Delete a schedule; messages that it has sent stay. Raises NotFound."""
    return request("deleteSchedule", places, topic, schedule, limits=limits)


def pause_schedule(
    places: Places,
    /,
    topic: str,
    schedule: str,
    note: str | None = None,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Fire nothing until the schedule is resumed; `note` says why. Raises NotFound."""
    return request("pauseSchedule", places, topic, schedule, note=note, limits=limits)


def resume_schedule(
    places: Places, /, topic: str, schedule: str, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Fire again, from the first instant from now on. Raises NotFound."""
    return request("resumeSchedule", places, topic, schedule, limits=limits)


def run_schedule(
    places: Places, /, topic: str, schedule: str, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Fire once at once, also while paused; returns the `id` of the message. Raises NotFound."""
    return request("runSchedule", places, topic, schedule, limits=limits)


def backfill_schedule(
    places: Places,
    /,
    topic: str,
    schedule: str,
    *,
    rate: int | None = None,
    **said: Unpack[RangeKeywords],
) -> Call[dict[str, Any]]:
    """Send messages for instants from `from_` to before `until` (now), at most `rate` a second. A
    call sends 1,000; `next_from_ms` of the answer is where the next one goes on, or None. Raises
    NotFound.
    """
    check_keywords("backfill_schedule", said, RangeKeywords)
    limit_s, given = split_limit(said)
    from_ms = _time_ms(given, "from_", "from_ms")
    if from_ms is None:
        raise TypeError("backfill_schedule needs from_ or from_ms")
    return request(
        "backfillSchedule",
        places,
        topic,
        schedule,
        from_ms=from_ms,
        until_ms=_time_ms(given, "until", "until_ms"),
        rate=rate,
        limit_s=limit_s,
    )


def preview_schedule(
    places: Places, /, topic: str, schedule: str, n: int = 10, **said: Unpack[RangeKeywords]
) -> Call[dict[str, Any]]:
    """Return the next `n` firings, with what clock changes do to them: from `from_` (now) to before
    `until`. Raises NotFound.
    """
    check_keywords("preview_schedule", said, RangeKeywords)
    limit_s, given = split_limit(said)
    return request(
        "previewSchedule",
        places,
        topic,
        schedule,
        n=n,
        from_ms=_time_ms(given, "from_", "from_ms"),
        until_ms=_time_ms(given, "until", "until_ms"),
        limit_s=limit_s,
    )


def try_schedule(
    places: Places, /, topic: str, schedule: str, n: int = 10, **said: Unpack[TryScheduleKeywords]
) -> Call[dict[str, Any]]:
    """Return the firings that a schedule would have; nothing is stored. What says something of the
    messages is checked only.
    """
    check_keywords("try_schedule", said, TryScheduleKeywords)
    limit_s, members = _members(said)
    if "from_" in members:
        members["from"] = members.pop("from_")
    return request("trySchedule", places, topic, schedule, n=n, limit_s=limit_s, **members)


def _members(said: Mapping[str, Any]) -> tuple[float | None, dict[str, Any]]:
    """The time limit, and the members of the API. TypeError and ValueError as for other times."""
    limit_s, given = split_limit(said)
    unset = {f"{name}_ms": None for name in _TIMES if name in given and given[name] is None}
    members = unset | in_ms(given, *_SPANS)
    zone = members.get("zone")
    if isinstance(zone, ZoneInfo):
        if zone.key is None:
            raise ValueError(
                "zone is a ZoneInfo without a name, which only files have: name a zone"
            )
        members["zone"] = zone.key
    for name in _TIMES:
        if members.get(name) is not None:
            members[f"{name}_ms"] = _time_ms(members, name, f"{name}_ms")
        members.pop(name, None)
    if members.get("tags") is not None:
        members["tags"] = list(members["tags"])
    for name in ("headers", "backoff"):
        if members.get(name) is not None:
            members[name] = dict(members[name])
    return limit_s, members


def _time_ms(said: Mapping[str, Any], name: str, field: str) -> int | None:
    """A time in Unix ms, from a datetime or a number; None if neither is given."""
    at, at_ms = said.get(name), said.get(field)
    if at is None or at_ms is None:
        first_ms = ANCHOR_MS_MIN if name == "start" else UNIX_MS_MIN
        return at_ms if at is None else unix_ms(name, field, at, first_ms)
    raise ValueError(f"give {name} or {field}, not both")


def _body(body: bytes | str) -> dict[str, Any]:
    """The body's member. TypeError for what is neither text nor bytes."""
    if not isinstance(body, (bytes, str)):
        raise TypeError(f"body is bytes or str, not {type(body).__name__}")
    return with_body({}, body)
