"""Wall time of a zone to instants: what a time means that the clocks skip or repeat.

A recurrence yields naive wall times in rising order; `WallClock.next_instant` maps them to instants
in rising order. Instants are whole seconds since 1970. PEP 495 says what a wall time is: the
offsets of fold 0 and fold 1 are equal for an ordinary time, the second is smaller in a fold (the
clocks go back, the time occurs twice) and greater in a gap (they go forward, it never occurs).

A search of a recurrence goes from period to period or from day to day, so its cost is the number of
days that it looks at. A rule that matches once in 28 years costs a thousand of them for an instant.
Calls that put or preview such a rule refuse it; one that is stored fires whatever its search costs,
which is once in years.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from delaylog.contract.members import MemberError

# ---------------------------------------------------------------------------------- wall clocks

NextWall: TypeAlias = Callable[[datetime], datetime | None]
"""The first naive wall time of a recurrence after another, None if there is none."""
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001
SECOND: Final = timedelta(seconds=1)
_DAY_S: Final = 86_400
"""No gap is longer."""


class WallClock:
    """The wall clock of a zone."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone

    def wall(self, instant_s: int) -> datetime:
        """The naive wall time at an instant."""
        return (EPOCH + timedelta(seconds=instant_s) + self._offset(instant_s)).replace(fold=0)

    def is_steady(self, from_s: int, upto_s: int) -> bool:
        """Whether the clock does not change between two instants."""
        offset = self._offset(upto_s)
        # No zone changes twice within a day.
        return all(self._offset(at_s) == offset for at_s in range(from_s, upto_s, 86_400))

    def repeats(self, wall: datetime) -> bool:
        """Whether the clock shows this time twice."""
        before, after = self._offsets(wall)
        return before > after

    def instant(self, wall: datetime) -> int:
        """The instant of one wall time by RFC 5545: the first pass of a repeated time, and the
        offset before the change for a time that the clocks skip.
        """
        return _instant(wall, self._offsets(wall)[0])

    def next_instant(self, next_wall: NextWall, after_s: int, *, gap: str, fold: str) -> int | None:
        """The first instant after another, in seconds, or None.

        `gap` is `next`, `shift` or `skip`, `fold` is `first`, `second` or `both`. With `skip` and
        `both` the instants are exactly those at which the wall clock shows a time of the
        recurrence.
        """
        wall = self.wall(after_s)
        shifted = self._shifted(next_wall, after_s) if gap == "shift" else None
        if shifted is not None:
            # Times of the gap and times behind it are mixed now.
            plain = self._first_after(next_wall, wall, after_s, gap="skip", fold=fold)
            return shifted if plain is None else min(plain, shifted)
        before, after = self._offsets(wall)
        if before > after:
            # The previous instant is in a fold, where walls and instants have different orders.
            turn = self._turn(wall, before, after)
            end, again = _wall(turn, before), _wall(turn, after)
            if after_s >= turn:
                if fold == "first":
                    wall = end - SECOND
            elif fold == "second":
                wall = again - SECOND
            elif fold == "both":
                found = next_wall(wall)
                if found is not None and found < end:
                    return _instant(found, before)
                wall = again - SECOND
        return self._first_after(next_wall, wall, after_s, gap=gap, fold=fold)

    def _first_after(
        self, next_wall: NextWall, wall: datetime, after_s: int, *, gap: str, fold: str
    ) -> int | None:
        while (found := next_wall(wall)) is not None:
            before, after = self._offsets(found)
            if before >= after:
                instant = _instant(found, after if fold == "second" else before)
                if instant > after_s:
                    return instant
                # The second pass of a fold: only `both` starts a search for walls inside it.
                instant = _instant(found, after)
                if fold == "both" and instant > after_s:
                    return instant
                wall = found
            else:
                turn = self._turn(found, before, after)
                if gap == "next" and turn > after_s:
                    return turn
                wall = _wall(turn, after) - SECOND
                shifted = _instant(found, before)
                if gap == "shift" and shifted > after_s:
                    plain = self._first_after(next_wall, wall, after_s, gap="skip", fold=fold)
                    return shifted if plain is None else min(plain, shifted)
        return None

    def _shifted(self, next_wall: NextWall, after_s: int) -> int | None:
        """The next instant of a gap that has just been, whose times come late by its length."""
        before = self._offset(after_s - _DAY_S)
        if before >= self._offset(after_s):
            return None
        wall = _wall(after_s, before)
        found = next_wall(wall)
        if found is None:
            return None
        offsets = self._offsets(found)
        return _instant(found, before) if offsets[0] < offsets[1] else None

    def _offset(self, instant_s: int) -> timedelta:
        # `fromutc` is given the UTC time with our zone attached, as PEP 495 wants it.
        utc = (EPOCH + timedelta(seconds=instant_s)).replace(tzinfo=self._zone)
        offset = self._zone.fromutc(utc).utcoffset()
        assert offset is not None, "a zone has an offset at each instant"
        return offset

    def _offsets(self, wall: datetime) -> tuple[timedelta, timedelta]:
        before = wall.replace(tzinfo=self._zone).utcoffset()
        after = wall.replace(tzinfo=self._zone, fold=1).utcoffset()
        assert before is not None
        assert after is not None
        return before, after

    def _turn(self, wall: datetime, before: timedelta, after: timedelta) -> int:
        """The instant at which the offset changes; `wall` is in the gap or the fold of it."""
        low, high = sorted((_instant(wall, before), _instant(wall, after)))
        # The change is in (low, high], as the wall has one offset before and one after.
        start = self._offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == start:
                low = middle
            else:
                high = middle
        return high


def _instant(wall: datetime, offset: timedelta) -> int:
    return (wall - EPOCH - offset) // SECOND


def _wall(instant_s: int, offset: timedelta) -> datetime:
    return EPOCH + timedelta(seconds=instant_s) + offset


# --------------------------------------------------------------------------- limits of a search

DAYS_MAX: Final = 500
"""Days of one search: about a millisecond. The 29 February takes at most 312 of them, a Friday the
13th 465.
"""


def too_rare(field: str) -> MemberError:
    """The refusal of a cron expression or a rule."""
    what = (
        f"matches too rarely, or never: {DAYS_MAX} days were looked at for one instant; make it "
        "match more often, or put a schedule of fewer conditions whose consumer judges the rest"
    )
    return MemberError(f"{field} {what}", field=field, what=what)
