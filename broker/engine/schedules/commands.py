"""Calls about schedules: put, patch, pause, resume, drop, run now, backfill, list and preview.

A call checks, decides and appends one frame. A time that a call changes never moves a schedule
behind an instant that has fired.

A backfill sends messages for instants of the past. They are ordinary delayed messages with the ids
of their instants. A rate is a distance between their due times, so nothing has to run meanwhile.
Progress, `count` and overlap of the schedule are not concerned, and the header `n` is 0. An instant
whose message is living is not sent again; one whose message has ended is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from delaylog.broker.engine.errors import (
    BadRequestError,
    ConflictError,
    QuotaRefusal,
    TooLargeError,
    UnknownError,
)
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.schedules.runner import (
    SLICE_BYTES,
    SLICE_FIRINGS,
    Firing,
    append_firings,
    append_schedule,
    begin_after,
    is_spent,
    pack_message,
    plan_recall,
    recall_ahead,
    unpack_message,
    wait_for,
)
from delaylog.broker.engine.schedules.schedule import Progress, Rules, Schedule, Spec, shared
from delaylog.broker.engine.state import EngineState
from delaylog.broker.rules.schedules.firings import check_window, count_instants, due_ms
from delaylog.broker.rules.schedules.instants import LocalTime, local_time, next_instant
from delaylog.broker.rules.schedules.rrule_text import members_of_text, said_by
from delaylog.broker.rules.schedules.timing import FORMS, check_timing
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.calls.schedules import INSTANT_MS_MAX, NAME, NOTE, RULES, TIMING
from delaylog.contract.members import limit_note
from delaylog.contract.message_fields import BY_NAME, check_id

FIELDS: Final = BY_NAME.keys() - {"id", "merge"}
"""Members of a send that a schedule may have; id and merging are its own."""
PREVIEW_MAX: Final = 1_000
COUNTED_DAYS_MAX: Final = 7_305
"""Twenty years, whose days are counted in some 50 ms."""
_LOCAL: Final = ("zone", "gap", "fold")
"""Members that only a form in local time has."""
_TRIES: Final = 16
"""Milliseconds that are tried for a firing by hand."""


class Coming(NamedTuple):
    """An instant to come, when it fires, and how it looks in the zone of its schedule."""

    instant_ms: int
    due_ms: int
    local: LocalTime


def the_schedule(state: EngineState, topic: Topic, name: str) -> Schedule:
    """A schedule by name. Raises UnknownError."""
    found = state.schedules.find(topic.number, name)
    if found is None:
        raise UnknownError(f"topic {topic.name!r} has no schedule {name[:100]!r}", field="schedule")
    return found


def list_schedules(
    state: EngineState, topic: Topic, *, after: int = 0, limit: int = 100
) -> Iterator[Schedule]:
    """Schedules of a topic, from the first behind the number `after` on; 0: all. Each is read when
    it is taken.

    Their order is that of their places in memory, in which a schedule stays while it exists.
    """
    return islice(state.schedules.of_topic(topic.number, after), limit)


def put_schedule(
    state: EngineState,
    topic: Topic,
    name: str,
    members: Mapping[str, Any],
    body: bytes,
    now_ms: int,
    zones: Zones = PACKAGED,
) -> Schedule:
    """Create a schedule, or replace the one of its name; an equal one stays as it is.

    `members` are those of TIMING and RULES, and fields of a send. Raises MemberError that names the
    member, ConflictError and QuotaRefusal.
    """
    one = planned_schedule(state, topic, name, members, body, now_ms, zones)
    return _put_changed(state, topic, one, now_ms, zones)


def planned_schedule(
    state: EngineState,
    topic: Topic,
    name: str,
    members: Mapping[str, Any],
    body: bytes,
    now_ms: int,
    zones: Zones = PACKAGED,
) -> Schedule:
    """What `put_schedule` stores; raises what it raises. The topic may be a blank one."""
    check_id(NAME.check(name))
    known = state.schedules.find(topic.number, name)
    if known is None and state.schedules.collides(topic.number, name):
        raise ConflictError(
            f"the name {name!r} cannot be stored here: give another", field=NAME.name
        )
    if known is None and len(state.schedules) >= state.limits.schedules_max:
        raise QuotaRefusal(
            f"there are {len(state.schedules)} schedules, and schedules_max is "
            f"{state.limits.schedules_max}: drop schedules, or raise schedules_max in [limits]",
            quota="schedules",
        )
    members = anchored(members, now_ms, zones, known)
    spec = spec_of(state, name, members, body, zones)
    return _changed(state, topic, name, spec, now_ms, zones)


def anchored(
    members: Mapping[str, Any], now_ms: int, zones: Zones = PACKAGED, known: Schedule | None = None
) -> dict[str, Any]:
    """The members with a `start_ms`, which an interval or a rule counts from.

    By default it is the time of the first put. A rule begins at the midnight of that day instead,
    so that it fires at full minutes unless it names others. Lines of iCalendar around a rule say it
    themselves.
    """
    members = members_of_text(members, zones)
    forms = [form for form in FORMS if members.get(form) is not None]
    if forms == ["interval_ms"]:
        _check_elapsed(members)
    if members.get("start_ms") is not None or forms not in (["interval_ms"], ["rrule"]):
        return dict(members)
    zone = members.get("zone") or "UTC"
    old = None if known is None else known.spec.timing
    if old is not None and getattr(old, forms[0]) is not None and old.zone == zone:
        return {**members, "start_ms": old.start_ms}
    start_ms = now_ms
    if forms == ["rrule"] and isinstance(zone, str) and zone in zones.names:
        midnight = datetime.fromtimestamp(now_ms / 1_000, zones.zone(zone)).replace(
            hour=0, minute=0, second=0, microsecond=0, fold=0
        )
        start_ms = int(midnight.timestamp()) * 1_000
    return {**members, "start_ms": start_ms}


def _check_elapsed(members: Mapping[str, Any]) -> None:
    for name in _LOCAL:
        if members.get(name) is not None:
            raise BadRequestError(
                f"{name} means nothing with interval_ms, which is elapsed time: leave it out",
                field=name,
            )


def patch_schedule(
    state: EngineState,
    topic: Topic,
    one: Schedule,
    changes: Mapping[str, Any],
    now_ms: int,
    *,
    body: bytes | None = None,
    zones: Zones = PACKAGED,
) -> Schedule:
    """Change members; None takes one away, and no change writes nothing. Another form of timing
    replaces the present one, and counts from now, or from a start that is to come.
    """
    members = {**members_of(one), **changes}
    for form in FORMS:
        if changes.get(form) is None:
            continue
        members |= {other: None for other in FORMS if other != form and other not in changes}
        past = (one.spec.timing.start_ms or 0) <= now_ms
        another = getattr(one.spec.timing, form) is None
        if another and "start_ms" not in changes and past:
            members["start_ms"] = None
        if another and "gap" not in changes and one.spec.timing.gap != "skip":
            # Each form has its own default.
            members["gap"] = None
    if isinstance(changes.get("rrule"), str):
        members |= {name: None for name in said_by(changes["rrule"]) if name not in changes}
    if members.get("interval_ms") is not None:
        members |= {name: None for name in _LOCAL if name not in changes}
    members = anchored(members, now_ms, zones)
    old_body, _ = unpack_message(one.spec.message)
    spec = spec_of(state, one.name, members, old_body if body is None else body, zones)
    changed = _changed(state, topic, one.name, spec, now_ms, zones)
    return _put_changed(state, topic, changed, now_ms, zones)


def members_of(one: Schedule) -> dict[str, Any]:
    """What was said about a schedule, but for its body: members of a put."""
    _, fields = unpack_message(one.spec.message)
    return {**one.spec.timing.as_dict(), **one.spec.rules.as_dict(), **fields}


def pause_schedule(state: EngineState, one: Schedule, note: str, now_ms: int) -> Schedule:
    """Fire nothing until it is resumed. A firing that waits for a message is given up.

    One that is paused keeps its note unless there is a new one.
    """
    NOTE.check(note)
    note = note or one.note or ""
    progress = one.progress.copy()
    progress.give_up_buffered()
    changed = Schedule(one.number, one.topic, one.name, one.spec, note).at(progress)
    return _put(state, changed, now_ms)


def resume_schedule(
    state: EngineState, one: Schedule, now_ms: int, zones: Zones = PACKAGED
) -> Schedule:
    """Fire again, from the first instant from now on; those of the pause are passed over."""
    if not one.paused:
        return one
    progress = one.progress.copy()
    begin_after(one, progress, max(now_ms - 1, _newest(progress)), zones)
    changed = Schedule(one.number, one.topic, one.name, one.spec, None).at(progress)
    return _put(state, changed, now_ms)


def drop_schedule(state: EngineState, one: Schedule, now_ms: int) -> int:
    """Remove a schedule; messages that it has sent stay. Returns the end of the frame."""
    return append_schedule(state, {"drop": one.number}, now_ms)


def run_now(state: EngineState, one: Schedule, now_ms: int, zones: Zones = PACKAGED) -> str:
    """Fire once at once, paused or not, whatever is open; returns the id of the message.

    It is a firing like any other. Its instant is the present, or the first millisecond from then on
    that no other firing has; the next instant stays.
    """
    instant_ms = instant_by_hand(one, now_ms, zones)
    progress = replace(one.progress, n=one.progress.n + 1, fired_ms=instant_ms)
    if progress.next_ms:
        wait_for(one, progress, progress.next_ms, zones)
    firing = Firing(one, instant_ms, now_ms, progress.n)
    append_firings(state, [firing], {one.number: progress}, now_ms, by=zones.version)
    return one.id_at(instant_ms)


def instant_by_hand(one: Schedule, now_ms: int, zones: Zones = PACKAGED) -> int:
    """The instant of `run_now`: the first millisecond that is no instant of the timing.

    Raises ConflictError if `run_now` would.
    """
    if is_spent(one, one.progress):
        times = one.progress.n
        raise ConflictError(f"schedule {one.name!r} has fired {times} times, which is its count")
    first_ms = max(now_ms, one.progress.fired_ms + 1)
    for at in range(first_ms, first_ms + _TRIES):
        if next_instant(one.spec.timing, at - 1, zones) != at:
            return at
    raise ConflictError(f"schedule {one.name!r} fires all the time: wait for its next firing")


class Instants(NamedTuple):
    """Which instants a preview has: at most `most`, from one time on to before another."""

    most: int
    from_ms: int | None = None
    """None: those to come."""
    until_ms: int = INSTANT_MS_MAX


def previewed(
    one: Schedule, wanted: Instants, now_ms: int, zones: Zones = PACKAGED
) -> Iterator[Coming]:
    """The instants, as if the schedule were not paused, one by one: each may take milliseconds.

    Raises MemberError for a timing whose instants are too rare to be looked for.
    """
    count, from_ms, until_ms = wanted
    if from_ms is not None and until_ms <= from_ms:
        raise BadRequestError(
            f"until_ms must be after from_ms {from_ms}, not {until_ms}", field="until_ms"
        )
    if not 1 <= count <= PREVIEW_MAX:
        raise BadRequestError(f"count must lie from 1 to {PREVIEW_MAX}, not {count}", field="count")
    timing, rules = one.spec.timing, one.spec.rules
    left = count if timing.count is None else min(count, timing.count - one.progress.n)
    at = one.progress.next_ms or None
    if one.paused:
        at = next_instant(timing, max(now_ms - 1, _newest(one.progress)), zones, bounded=True)
    if from_ms is not None:
        coming, at = at, next_instant(timing, from_ms - 1, zones, bounded=True)
        if timing.count is not None and coming is not None and at is not None and at > coming:
            # Those before the range count, too.
            if timing.cron is not None and at - coming > COUNTED_DAYS_MAX * 86_400_000:
                raise BadRequestError(
                    f"from_ms is over {COUNTED_DAYS_MAX} days after the next instant: that is too "
                    "far for a schedule with a count, whose instants are counted",
                    field="from_ms",
                )
            left = min(count, timing.count - one.progress.n - count_instants(timing, coming, at))
    key = f"{one.topic}/{one.name}".encode()
    while at is not None and at < until_ms and left > 0:
        following = next_instant(timing, at, zones, bounded=True)
        due = due_ms(key, at, following, rules.jitter_ms)
        yield Coming(at, due, local_time(timing, at, zones))
        at, left = following, left - 1


def spec_of(
    state: EngineState, name: str, members: Mapping[str, Any], body: bytes, zones: Zones
) -> Spec:
    """The checked members. Raises MemberError."""
    given = {member: value for member, value in members.items() if value is not None}
    timing = check_timing({m: v for m, v in given.items() if m in TIMING.names}, zones)
    rules = RULES.take({m: v for m, v in given.items() if m in RULES.names})
    fields = {m: v for m, v in given.items() if m in FIELDS}
    unknown = given.keys() - TIMING.names - RULES.names - FIELDS
    if unknown:
        which = min(unknown)
        raise BadRequestError(f"a schedule has no member {which[:64]!r}", field=which[:64])
    if len(body) > state.limits.body_bytes_max:
        raise TooLargeError(
            f"a body has at most {state.limits.body_bytes_max} bytes, not {len(body)}"
            + limit_note("body_bytes_max"),
            field="body",
        )
    said = Rules(**{member: value for member, value in rules.items() if value is not None})
    check_window(timing, said.after_outage)
    return Spec(shared(timing), shared(said), pack_message(body, fields, name))


def _changed(
    state: EngineState, topic: Topic, name: str, spec: Spec, now_ms: int, zones: Zones
) -> Schedule:
    """A schedule with this spec, with its next instant; what was sent ahead is taken back."""
    known = state.schedules.find(topic.number, name)
    if known is not None:
        if known.spec == spec:
            return known
        known = plan_recall(state, topic, known, now_ms, zones).one
    number = state.schedules.next_number if known is None else known.number
    note = None if known is None else known.note
    one = Schedule(number, topic.number, name, spec, note)
    progress = Progress() if known is None else known.progress.copy()
    old = None if known is None else known.spec
    if old is None or (old.timing, old.rules.jitter_ms) != (spec.timing, spec.rules.jitter_ms):
        if old is not None and progress.next_ms and not one.paused and _recurs_as(old, spec):
            # Instants that have not fired yet stay, also those of before now.
            in_time = progress.next_ms < (spec.timing.end_ms or INSTANT_MS_MAX)
            wait_for(one, progress, progress.next_ms if in_time else None, zones)
        else:
            # A firing by hand may have the instant of now, as the clock can stand still.
            after_ms = max(now_ms - 1, _newest(progress), progress.fired_ms)
            next_instant(spec.timing, after_ms, zones, bounded=True)
            begin_after(one, progress, after_ms, zones)
        if is_spent(one, progress):
            raise BadRequestError(
                f"count {spec.timing.count} is used up: the schedule has fired {progress.n} times; "
                "give a larger count, or delete the schedule to begin again",
                field="count",
            )
        if not progress.next_ms:
            form = next(form for form in FORMS if getattr(spec.timing, form) is not None)
            raise BadRequestError(
                f"{form} never fires from now on: change it, or end_ms or count", field=form
            )
    if spec.rules.overlap != "buffer_one":
        progress.give_up_buffered()
    return one.at(progress)


def _recurs_as(old: Spec, new: Spec) -> bool:
    """Whether the instants are the same but for their end."""
    parts = [replace(each.timing, end_ms=None, count=None) for each in (old, new)]
    return parts[0] == parts[1]


def _newest(progress: Progress) -> int:
    """The newest instant that has fired or was skipped: another recurrence goes on behind it.

    It may lie a second ahead, since messages are sent ahead of their due times.
    """
    return progress.last_ms if progress.n or progress.skipped else 0


def _put_changed(
    state: EngineState, topic: Topic, one: Schedule, now_ms: int, zones: Zones
) -> Schedule:
    """Store what `_changed` made; nothing if the caller said nothing new."""
    known = state.schedules.get(one.number)
    if known is not None:
        if known.spec == one.spec:
            return known
        recall_ahead(state, topic, known, now_ms, zones)
    return _put(state, one, now_ms, by=zones.version)


def _put(state: EngineState, one: Schedule, now_ms: int, *, by: str = PACKAGED.version) -> Schedule:
    """Store a schedule, unless it is there as it is."""
    packed = one.pack()
    present = state.schedules.get(one.number)
    if present is None or present.pack() != packed:
        append_schedule(state, {"put": packed, "by": by}, now_ms)
    return one


# ------------------------------------------------------------------------------------- backfill

INSTANTS_MAX: Final = 1_000
"""Instants of one call; the answer says where the next one goes on."""


class Backfill(NamedTuple):
    """What a call sends."""

    firings: list[Firing]
    next_from_ms: int | None
    """The first instant of the range that is left; None: none is."""


def plan_backfill(
    state: EngineState,
    one: Schedule,
    *,
    from_ms: int,
    until_ms: int,
    rate: int | None,
    now_ms: int,
    zones: Zones = PACKAGED,
) -> Backfill:
    """The firings of instants in [from_ms, until_ms), `rate` a second; None: all due now.

    Raises BadRequestError for a range that is empty, or not of the past.
    """
    if until_ms > now_ms:
        raise BadRequestError(
            f"until_ms {until_ms} is after the present {now_ms}: instants to come fire by "
            "themselves",
            field="until_ms",
        )
    if from_ms >= until_ms:
        raise BadRequestError(
            f"from_ms must be before until_ms {until_ms}, not {from_ms}", field="from_ms"
        )
    # Together not more than the largest send.
    room = state.limits.request_bytes_max // max(len(one.spec.message), 1)
    count_max = min(max(room, 1), INSTANTS_MAX)
    firings: list[Firing] = []
    at = next_instant(one.spec.timing, from_ms - 1, zones)
    while at is not None and at < until_ms:
        if len(firings) == count_max:
            return Backfill(firings, at)
        after_ms = 0 if rate is None else len(firings) * 1_000 // rate
        firings.append(Firing(one, at, now_ms + after_ms, 0))
        at = next_instant(one.spec.timing, at, zones)
    return Backfill(firings, None)


def send_backfill(
    state: EngineState, firings: list[Firing], now_ms: int, zones: Zones = PACKAGED
) -> Iterator[None]:
    """Send firings of one schedule, a frame in each step. ConflictError if it changes meanwhile."""
    if not firings:
        return
    one = firings[0].schedule
    step = max(min(SLICE_BYTES // max(len(one.spec.message), 1), SLICE_FIRINGS), 1)
    for first in range(0, len(firings), step):
        present = state.schedules.get(one.number)
        if present is None or present.spec != one.spec:
            raise ConflictError(
                f"schedule {one.name!r} was changed meanwhile; {first} messages were sent"
            )
        append_firings(state, firings[first : first + step], {}, now_ms, by=zones.version)
        yield
