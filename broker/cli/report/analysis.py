"""What the rows of minutes say: quantiles, the share of late messages, and incidents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from delaylog.broker.cli.watching.scrapes import quantile
from delaylog.broker.engine.watch.lateness import BOUNDS_MS
from delaylog.broker.host.metrics.minutes import MINUTE_MS, MinuteRow
from delaylog.broker.host.watch.loop_lag import BOUNDS as LOOP_BOUNDS
from delaylog.broker.host.watch.timings import DISK_BOUNDS

SLOW_S: Final = 0.1
"""99th percentile of syncs, or of the event loop, from which a minute is an incident."""
LATE_SHARE: Final = 0.01
"""Share of messages later than the objective from which a minute is an incident."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong from one minute to before another."""

    from_minute: int
    to_minute: int
    what: str

    def covers(self, from_ms: int, to_ms: int) -> bool:
        """Whether it and this time have some time in common."""
        return self.from_minute * MINUTE_MS <= to_ms and from_ms < self.to_minute * MINUTE_MS


def later_than(counts: Sequence[int], late_ms: int) -> int:
    """How many messages were later than a bound of lateness."""
    return sum(counts[BOUNDS_MS.index(late_ms) + 1 :])


def summed(rows: Sequence[MinuteRow], name: str) -> list[int]:
    """The sum of a list of counts over all rows."""
    columns = zip(*(getattr(row, name) for row in rows if getattr(row, name)), strict=True)
    return [sum(column) for column in columns]


def incidents(rows: Sequence[MinuteRow], late_ms: int) -> list[Incident]:
    """The incidents of these rows, by time. Neighbouring minutes with one cause are one."""
    found = [*_absences(rows)]
    for what, holds in _conditions(late_ms):
        found += _spans(rows, what, holds)
    return sorted(found, key=lambda each: (each.from_minute, each.what))


def _conditions(late_ms: int) -> list[tuple[str, Callable[[MinuteRow], bool]]]:
    def over(counts: Sequence[int], bounds: Sequence[float]) -> bool:
        return (quantile(counts, bounds, 0.99) or 0) > SLOW_S

    def late(row: MinuteRow) -> bool:
        return bool(row.ready_late) and (
            later_than(row.ready_late, late_ms) > LATE_SHARE * sum(row.ready_late)
        )

    return [
        (f"more than 1 % of messages were ready over {late_ms} ms late", late),
        ("sends were refused: the disk was full", lambda row: row.disk_full),
        ("syncs of the disk were slow", lambda row: over(row.syncs, DISK_BOUNDS)),
        ("the event loop was blocked", lambda row: over(row.loop_lags, LOOP_BOUNDS)),
        ("messages were ready, and nobody took any", lambda row: row.ready > 0 == row.delivered),
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


def _absences(rows: Sequence[MinuteRow]) -> Iterator[Incident]:
    for before, after in pairwise(rows):
        if after.minute > before.minute + 1:
            yield Incident(before.minute + 1, after.minute, "the broker was down")
        elif after.run != before.run:
            yield Incident(after.minute, after.minute + 1, "the broker was restarted")
        if after.leading != before.leading:
            what = "began to lead" if after.leading else "ceased to lead"
            yield Incident(after.minute, after.minute + 1, f"the node {what}")


def cause_of(late_ms: int, at_ms: int, found: Sequence[Incident]) -> str:
    """Why a message may have been late, by the incidents while it waited."""
    causes = list(dict.fromkeys(each.what for each in found if each.covers(at_ms - late_ms, at_ms)))
    return "; ".join(causes) or "it waited for a consumer, for its key or for a rate limit"
