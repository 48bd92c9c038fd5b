"""The archive hold: ended hours are kept until an archiver has a copy and releases them.

While `archive_hold` is on, an hour with rows is deleted only once it is below `archive_released`.
An ARCHIVE frame raises that limit, and only setting the clock back lowers it. Hours that may still
change are never released, so the hour floor is always at or above the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from delaylog.broker.engine.errors import ConflictError
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.storage.hours.hour_counts import HourCounts
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
