"""The archive hold: ended hours are kept until an archiver has a copy and releases them.

While `archive_hold` is on, an hour with rows is deleted only once it is below `archive_released`.
An ARCHIVE frame raises that limit, and only setting the clock back lowers it. Hours that may still
change are never released, so the hour floor is always at or above the limit.

`next_hour` says for a person why the archive cannot have the next hour yet, and from when. Without
it, a newcomer sees an archive of no hours, and cannot tell a fault from a matter of time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgpack

from delaylog.broker.engine.errors import ConflictError
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.layout import HOUR_MS, FrameKind, hour_name


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """How far the archive has got."""

    hold: bool
    released: int
    """Hours below this are released."""
    archivable: int
    """Hours below this have ended, and their messages need not stay readable."""
    held_hours: int
    """Number of hours that are kept for the archive only."""
    oldest: int | None
    """The first of those hours."""


def archive_status(state: EngineState, now_ms: int) -> ArchiveStatus:
    """How far the archive has got. Reads the counts of every hour, but no rows."""
    floor = archivable = state.hour_floor
    held: list[int] = []
    for hour, counts in state.hours.counts.near.items():
        if hour >= floor:
            continue
        if not is_over(counts, now_ms):
            archivable = min(archivable, hour)
        elif counts.rows and hour >= state.archive_released:
            held.append(hour)
    if not state.archive_hold:
        held.clear()
    released = state.archive_released
    oldest = min(held, default=None)
    return ArchiveStatus(state.archive_hold, released, archivable, len(held), oldest)


def is_over(counts: HourCounts, now_ms: int) -> bool:
    """Whether nothing in an hour lives or must stay readable."""
    return counts.ended and counts.keep_until_ms <= now_ms


@dataclass(frozen=True, slots=True)
class ArchiveCopy:
    """What the archiver says about its copy, to be compared with the hours it releases."""

    position: int | None = None
    """Log position of the copy."""
    rows: int | None = None
    """Rows of the hours to release in the copy."""


def release(
    state: EngineState,
    through_ms: int,
    now_ms: int,
    copy: ArchiveCopy = ArchiveCopy(),
) -> bool:
    """Release the hours that end at or before `through_ms`; False if they were released before.

    Raises ConflictError: nothing was released.
    """
    if not state.archive_hold:
        raise ConflictError(
            "ended hours are not held here: start the broker (in a cluster every node) with "
            "--archive-hold on, or DELAYLOG_ARCHIVE_HOLD=on"
        )
    through = through_ms // HOUR_MS
    if through <= state.archive_released:
        return False
    archivable = archive_status(state, now_ms).archivable
    if through > archivable:
        raise ConflictError(
            "some of these hours may change yet: nothing was released; release through "
            "archivable_through_ms at most",
            archivable_through_ms=archivable * HOUR_MS,
        )
    _check_copy(state, through, copy)
    members = {"through": through}
    state.append(FrameKind.ARCHIVE, [msgpack.packb(members)], now_ms)
    apply_archive(state, members)
    return True


def _check_copy(state: EngineState, through: int, copy: ArchiveCopy) -> None:
    rows = 0
    for hour, counts in state.hours.counts.near.items():
        if not counts.rows or not state.archive_released <= hour < through:
            continue
        rows += counts.rows
        if copy.position is not None and counts.position > copy.position:
            raise ConflictError(
                f"{hour_name(hour)} changed after position {copy.position}: nothing was released; "
                "archive it again"
            )
    if copy.rows is not None and rows != copy.rows:
        raise ConflictError(
            f"these hours have {rows} rows and the copy {copy.rows}: nothing was released; "
            "is it a copy of this broker's folder?"
        )


def apply_archive(state: EngineState, members: dict[str, int]) -> None:
    """Apply an ARCHIVE frame."""
    state.archive_released = max(state.archive_released, members["through"])


def keeps_topic(state: EngineState, topic: Topic) -> bool:
    """Whether the archive still needs the topic: rows of a dropped topic cannot be attributed."""
    return state.archive_hold and topic.last_hour >= state.archive_released


# ---------------------------------------------------------------- why the next hour has to wait

TOPICS_A_SLICE: Final = 1_000
TOPICS_NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class NextHour:
    """The first hour with messages that cannot be archived yet."""

    hour: int
    from_ms: int | None
    """The earliest time at which it can be; None if living messages hold it."""
    why: str


def next_hour(state: EngineState, now_ms: int) -> Generator[None, None, NextHour | None]:
    """The next hour of the archive; None if no message is in an hour of the next day and a half."""
    near = state.hours.counts.near
    hours = (
        hour
        for hour in sorted(near)
        if near[hour].rows and (hour >= state.hour_floor or not is_over(near[hour], now_ms))
    )
    hour = next(hours, None)
    if hour is None:
        return None
    counts = near[hour]
    over_ms = (hour + 2) * HOUR_MS
    if hour >= state.hour_floor:
        # Checkpoints raise the floor, half a minute after the end of the next hour at most.
        why = "an hour takes messages until an hour after its end"
        return NextHour(hour, max(over_ms, counts.keep_until_ms), why)
    living: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    for at, topic in enumerate(list(state.by_number.values())):
        name = topic.name if topic.namespace == "default" else f"{topic.namespace}/{topic.name}"
        for group in topic.groups.values():
            living[name] += group.hours.get(hour, 0) + group.guests.get(hour, 0)
            dead[name] += group.counts.dead if topic.last_hour >= hour else 0
        if at % TOPICS_A_SLICE == TOPICS_A_SLICE - 1:
            yield
    if counts.ended:
        until = datetime.fromtimestamp(counts.keep_until_ms / 1000, UTC)
        why = f"messages in it stay readable until {until:%Y-%m-%dT%H:%M:%SZ}, by ended_keep_ms"
        if +dead:
            why += (
                f" or, for dead letters, dead_keep_ms: topics with dead letters are {_some(dead)}"
            )
        return NextHour(hour, counts.keep_until_ms, why)
    return NextHour(hour, None, f"living messages of it are in topics {_some(living)}")


def _some(counts: Counter[str]) -> str:
    """The largest ones, with their counts."""
    there = (+counts).most_common(TOPICS_NAMED_MAX)
    rest = len(+counts) - len(there)
    names = ", ".join(f"{name} ({count})" for name, count in there)
    return f"{names} and {rest} more" if rest else names


def members(found: NextHour | None) -> dict[str, str | int | None] | None:
    """For an answer."""
    if found is None:
        return None
    return {"hour": hour_name(found.hour), "from_ms": found.from_ms, "why": found.why}
