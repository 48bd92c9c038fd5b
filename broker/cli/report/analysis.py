"""What the rows of minutes say: the share of late messages, stalls, and incidents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, zip_longest
from typing import Final, NamedTuple

from delaylog.broker.engine.watch.lateness import BOUNDS_MS
from delaylog.broker.host.metrics.minutes import MinuteRow, UntakenGroup
from delaylog.broker.host.watch.loop_lag import BOUNDS as LOOP_BOUNDS
from delaylog.broker.host.watch.timings import DISK_BOUNDS

STALL_S: Final = 0.1
"""A sync, or a lag of the event loop, that is longer than this holds messages up."""
STALLED_S: Final = 0.5
"""Seconds of a minute in such stalls, from which it is an incident: also in a single one, which no
percentile of a minute's thousands of samples would show."""
LATE_SHARE: Final = 0.01
"""Share of messages later than the objective from which a minute is an incident."""


class Incident(NamedTuple):
    """Something that went wrong from one minute to before another."""

    from_minute: int
    to_minute: int
    what: str


class Window(NamedTuple):
    """The minutes that a report is about."""

    first: int
    end: int
    """The minute after the last one."""


def later_than(counts: Sequence[int], late_ms: int) -> int:
    """How many messages were later than a bound of lateness."""
    return sum(counts[BOUNDS_MS.index(late_ms) + 1 :])


def summed(rows: Sequence[MinuteRow], name: str) -> list[int]:
    """The sum of a list of counts over all rows."""
    return [
        sum(column) for column in zip_longest(*(getattr(row, name) for row in rows), fillvalue=0)
    ]


def stalled_s(counts: Sequence[int], bounds: Sequence[float]) -> float:
    """Seconds in stalls, at least: each counts as the lower bound of its bucket."""
    lower = zip(bounds, counts[1:], strict=False)
    return sum(bound * count for bound, count in lower if bound >= STALL_S)


def incidents(rows: Sequence[MinuteRow], late_ms: int, window: Window) -> list[Incident]:
    """The incidents of a window, by time. Neighbouring minutes with one cause are one."""
    found = [*_absences(rows, window)]
    for what, holds in _conditions(late_ms):
        found += _spans(rows, what, holds)
    for group in dict.fromkeys(each for row in rows for each in row.untaken):
        what = f"nobody took ready messages of {_name(group)}: {cause_text(group.cause)}"
        found += _spans(rows, what, partial(_lacks, group))
    return sorted(found)


def _lacks(group: UntakenGroup, row: MinuteRow) -> bool:
    return group in row.untaken


def _name(group: UntakenGroup) -> str:
    return f"{group.namespace}/{group.topic}, group {group.group}"


def cause_text(cause: str) -> str:
    """A cause of `late.timeline` in words."""
    return cause.replace("_", " ")


def _conditions(late_ms: int) -> list[tuple[str, Callable[[MinuteRow], bool]]]:
    def late(row: MinuteRow) -> bool:
        return bool(row.ready_late) and (
            later_than(row.ready_late, late_ms) > LATE_SHARE * sum(row.ready_late)
        )

    return [
        (f"more than 1 % of messages were ready over {late_ms} ms late", late),
        ("sends were refused: the disk was full", lambda row: row.disk_full),
        ("syncs of the disk were slow", lambda row: stalled_s(row.syncs, DISK_BOUNDS) >= STALLED_S),
        (
            "the event loop was blocked",
            lambda row: stalled_s(row.loop_lags, LOOP_BOUNDS) >= STALLED_S,
        ),
        ("messages became dead letters", lambda row: row.dead > 0),
    ]


def _spans(
    rows: Sequence[MinuteRow], what: str, holds: Callable[[MinuteRow], bool]
) -> Iterator[Incident]:
    first: int | None = None
    last = 0
    for row in rows:
        if not holds(row):
            continue
        if first is not None and row.minute > last + 1:
            yield Incident(first, last + 1, what)
            first = None
        first = row.minute if first is None else first
        last = row.minute
    if first is not None:
        yield Incident(first, last + 1, what)


def _absences(rows: Sequence[MinuteRow], window: Window) -> Iterator[Incident]:
    if rows and rows[0].minute > window.first:
        yield Incident(window.first, rows[0].minute, "the broker was down")
    for before, after in pairwise(rows):
        if after.minute > before.minute + 1:
            # A process that stood still, or could not write the file, goes on as the same run.
            what = "no figures" if after.run == before.run else "the broker was down"
            yield Incident(before.minute + 1, after.minute, what)
        elif after.run != before.run:
            yield Incident(after.minute, after.minute + 1, "the broker was restarted")
        if after.leading != before.leading:
            what = "began to lead" if after.leading else "ceased to lead"
            yield Incident(after.minute, after.minute + 1, f"the node {what}")
    known = rows[-1].minute + 1 if rows else window.first
    if known < window.end:
        # Whether it is the same run will be in the next row.
        yield Incident(known, window.end, "the broker is down, or writes no figures")
