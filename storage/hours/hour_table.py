"""Counts of every hour: objects for near and past hours, columns for far ones.

A far hour costs 40 bytes: a row of five columns that are indexed by the hour itself. The first far
hour (`far_from`) rises as time goes on. It falls when the clock is set back; hours that had become
near ones stay so. A checkpoint has the counts of each hour (`HourCounts`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns import some
from delaylog.storage.layout import Int64Array


@dataclass(slots=True)
class HourCounts:
    """The counts of one hour by the log, whether or not its rows are in files yet."""

    rows: int = 0
    living: int = 0
    position: int = 0
    """End of the last frame that touched the hour."""
    keep_until_ms: int = 0
    """Time until which an ended row of the hour must stay readable."""
    guests: int = 0
    """Living rows in other hours that have their origin in this hour."""
    life: int = 0
    """Distinguishes an hour from a removed one of the same name; not in a checkpoint."""

    @property
    def ended(self) -> bool:
        """Whether the hour has no living row, and no living row elsewhere has its origin in it."""
        return self.living == 0 and self.guests == 0


NO_FAR_HOUR: Final = 1 << 40
COLUMNS: Final = ("rows", "living", "position", "keep_until_ms", "guests")
_GROWTH: Final = 1_024


class HourTable:
    """Counts by hour. Changes of far hours go through `add` and `touch`."""

    def __init__(self) -> None:
        self.near: dict[int, HourCounts] = {}
        self.far_from = NO_FAR_HOUR
        self._base = 0
        self._columns: dict[str, Int64Array] = {name: np.zeros(0, np.int64) for name in COLUMNS}
        self._early: list[int] = []
        """Near hours beyond `far_from`."""
        self._lives = 0
        self._living: int | None = 0
        """A cache of `far_living`; None = not computed: an idle check should not sum the column."""

    # ------------------------------------------------------------------ reading

    def is_far(self, hour: int) -> bool:
        """Whether the rows of an hour are in the far tier."""
        return hour >= self.far_from and hour not in self.near

    def far_mask(self, hours: Int64Array) -> npt.NDArray[np.bool_]:
        """Mask of the hours whose rows are in the far tier."""
        far: npt.NDArray[np.bool_] = hours >= self.far_from
        for hour in self._early:
            far &= hours != hour
        return far

    def get(self, hour: int) -> HourCounts | None:
        """The counts of an hour, None if there are none; those of a far hour are a copy."""
        found = self.near.get(hour)
        if found is not None or hour < self.far_from:
            return found
        at = hour - self._base
        if not 0 <= at < len(self._columns["rows"]):
            return None
        values = [int(self._columns[name][at]) for name in COLUMNS]
        return HourCounts(*values) if any(values) else None

    def __getitem__(self, hour: int) -> HourCounts:
        found = self.get(hour)
        if found is None:
            raise KeyError(hour)
        return found

    def __contains__(self, hour: int) -> bool:
        return self.get(hour) is not None

    def __len__(self) -> int:
        return len(self.near) + len(self.far_hours())

    def __iter__(self) -> Iterator[int]:
        """Every hour with counts, ascending."""
        return iter(np.sort(np.concatenate([self._near_hours(), self.far_hours()])).tolist())

    def items(self) -> list[tuple[int, HourCounts]]:
        """Every hour with its counts, ascending, an object for each: for tools and tests."""
        return [(hour, self[hour]) for hour in self]

    def life(self, hour: int) -> int | None:
        """A number that identifies an hour until it is removed; None if it has no counts.

        An hour that was removed and gets rows again, after the clock was set back, has another.
        """
        found = self.near.get(hour)
        if found is not None:
            return found.life
        return 0 if hour in self else None

    def _near_hours(self) -> Int64Array:
        return np.fromiter(self.near, np.int64, len(self.near))

    def far_hours(self) -> Int64Array:
        """Far hours with counts, ascending."""
        used = np.zeros(len(self._columns["rows"]), np.bool_)
        for column in self._columns.values():
            used |= column != 0
        out: Int64Array = np.flatnonzero(used) + self._base
        return out

    def living_hours(self) -> Int64Array:
        """Every hour with living rows."""
        near = [hour for hour, counts in self.near.items() if counts.living > 0]
        far = np.flatnonzero(self._columns["living"] > 0) + self._base
        return np.concatenate([np.array(near, np.int64), far])

    @property
    def row_total(self) -> int:
        """Rows of all hours."""
        near = sum(counts.rows for counts in self.near.values())
        return near + self.far_rows

    @property
    def far_rows(self) -> int:
        """Number of rows that far hours have ever had."""
        return int(self._columns["rows"].sum())

    @property
    def far_living(self) -> int:
        """Living rows of all far hours, once for each group that sees them."""
        if self._living is None:
            self._living = int(self._columns["living"].sum())
        return self._living

    def row_counts(self, hours: Int64Array) -> Int64Array:
        """Number of rows that each of these hours has ever had; 0 for an unknown hour."""
        out = np.zeros(len(hours), np.int64)
        at = hours - self._base
        far = self.far_mask(hours) & (at >= 0) & (at < len(self._columns["rows"]))
        out[far] = self._columns["rows"][at[far]]
        for place in np.flatnonzero(~far).tolist():
            counts = self.near.get(int(hours[place]))
            out[place] = counts.rows if counts is not None else 0
        return out

    # ------------------------------------------------------------------ changing

    def make(self, hour: int) -> HourCounts:
        """The counts of a near hour, created if needed."""
        assert not self.is_far(hour), "the counts of far hours are in columns"
        found = self.near.get(hour)
        if found is None:
            self._lives += 1
            found = self.near[hour] = HourCounts(life=self._lives)
        return found

    def number(self, hours: Sequence[int], starts: Sequence[int], position: int) -> list[int]:
        """Count the rows of a frame that ends at `position`; returns the first number of each hour.

        Hours ascend. Rows starts[k] to starts[k + 1] of the frame are those of hours[k].
        """
        near = bisect_left(hours, self.far_from)
        firsts: list[int] = []
        for k, hour in enumerate(hours[:near]):
            n = starts[k + 1] - starts[k]
            counts = self.near.get(hour) or self.make(hour)
            firsts.append(counts.rows + 1)
            counts.rows += n
            counts.living += n
            counts.position = position
        if near < len(hours):
            firsts += self._number_far(hours[near:], starts[near:], position)
        return firsts

    def _number_far(self, hours: Sequence[int], starts: Sequence[int], position: int) -> list[int]:
        """The same for hours from the first far one on, most of them far."""
        which, lengths = np.array(hours, np.int64), np.diff(starts)
        far = self.far_mask(which)
        out = np.zeros(len(which), np.int64)
        if some(far):
            out[far] = self.take_numbers(which[far], lengths[far], position)
        for at in np.flatnonzero(~far).tolist():
            counts, n = self.make(int(which[at])), int(lengths[at])
            out[at] = counts.rows + 1
            counts.rows += n
            counts.living += n
            counts.position = position
        return out.tolist()

    def count_living(
        self,
        by_hour: Mapping[int, int],
        times: int,
        end_position: int = 0,
        keep_until_ms: int = 0,
    ) -> None:
        """Add `times` times the numbers in `by_hour` to the living rows of these hours.

        A row counts once for each group that sees it. `number` has counted new rows already.
        """
        self._count("living", by_hour, times, end_position, keep_until_ms)

    def count_guests(
        self, by_hour: Mapping[int, int], times: int, end_position: int, keep_until_ms: int = 0
    ) -> None:
        """Add `times` times the numbers in `by_hour` to the guests of these hours.

        A moved row is found through its origin, which is therefore kept as long as the row.
        """
        self._count("guests", by_hour, times, end_position, keep_until_ms)

    def keep(self, hours: Iterable[int], end_position: int, keep_until_ms: int = 0) -> None:
        """Note that a frame changed rows of these hours; keep ended ones until `keep_until_ms`."""
        self._count("living", dict.fromkeys(hours, 0), 1, end_position, keep_until_ms)

    def _count(
        self,
        name: str,
        by_hour: Mapping[int, int],
        times: int,
        end_position: int,
        keep_until_ms: int,
    ) -> None:
        far: list[int] = []
        for hour, n in by_hour.items():
            counts = self.near.get(hour)
            if counts is None:
                if hour >= self.far_from:
                    far.append(hour)
                    continue
                counts = self.make(hour)
            setattr(counts, name, getattr(counts, name) + times * n)
            counts.position = max(counts.position, end_position)
            counts.keep_until_ms = max(counts.keep_until_ms, keep_until_ms)
        if far:
            hours = np.array(far, np.int64)
            values = np.array([by_hour[hour] for hour in far], np.int64)
            self.add(name, hours, times * values)
            self.touch(hours, end_position, keep_until_ms)

    def add(self, name: str, hours: Int64Array, values: Int64Array | int) -> None:
        """Add to a column of distinct far hours."""
        self._living = None
        self._columns[name][self._places(hours)] += values

    def touch(self, hours: Int64Array, position: int, keep_until_ms: int = 0) -> None:
        """Note that a frame that ends at `position` touched these far hours."""
        at = self._places(hours)
        for name, value in (("position", position), ("keep_until_ms", keep_until_ms)):
            column = self._columns[name]
            column[at] = np.maximum(column[at], value)

    def take_numbers(self, hours: Int64Array, lengths: Int64Array, position: int) -> Int64Array:
        """Count new rows of distinct far hours; returns the first row number of each."""
        at = self._places(hours)
        rows = self._columns["rows"]
        firsts: Int64Array = rows[at] + 1
        rows[at] += lengths
        self._columns["living"][at] += lengths
        self._living = None
        self._columns["position"][at] = position
        return firsts

    def _places(self, hours: Int64Array) -> Int64Array:
        low, high = int(hours.min()), int(hours.max())
        size = len(self._columns["rows"])
        if size == 0:
            self._base = low
        if low < self._base or high >= self._base + size:
            base = min(self._base, low)
            end = max(self._base + size, high + 1 + _GROWTH)
            for name, column in self._columns.items():
                grown = np.zeros(end - base, np.int64)
                grown[self._base - base : self._base - base + size] = column
                self._columns[name] = grown
            self._base = base
        return hours - self._base

    def __delitem__(self, hour: int) -> None:
        del self.near[hour]
        if hour in self._early:
            self._early.remove(hour)

    # ------------------------------------------------------------------ the border

    def set_border(self, far_from: int) -> None:
        """Make hours from `far_from` on far ones, except those that are near already.

        Sets the border for the first time, or lowers it; `bring_near` raises it.
        """
        assert far_from < self.far_from, "the border is raised by `bring_near`"
        self.far_from = far_from
        self._early = sorted(hour for hour in self.near if hour >= far_from)

    def bring_near(self, hour: int) -> None:
        """Make a far hour near, and all far hours before it, which are empty."""
        counts = self.get(hour)
        if counts is not None and hour not in self.near:
            self._living = None
            self.near[hour] = counts
            for column in self._columns.values():
                column[hour - self._base] = 0
        self.far_from = hour + 1
        self._early = [early for early in self._early if early > hour]

    def next_far(self, last: int) -> int | None:
        """The first far hour with counts up to `last`, None if there is none."""
        start = max(self.far_from - self._base, 0)
        # A negative index would count from the end of the columns.
        stop = max(min(last + 1 - self._base, len(self._columns["rows"])), start)
        firsts = [np.flatnonzero(column[start:stop])[:1] for column in self._columns.values()]
        found = np.concatenate(firsts)
        return self._base + start + int(found.min()) if len(found) else None

    # ------------------------------------------------------------------ checkpoints

    def saved(self) -> dict[str, Any]:
        """The far hours as plain values."""
        return {
            "from": self.far_from,
            "base": self._base,
            "columns": {name: column.tobytes() for name, column in self._columns.items()},
        }

    def restore(self, near: Mapping[int, HourCounts], far: Mapping[str, Any] | None) -> None:
        """Load the counts of a checkpoint."""
        self.near = dict(near)
        if far is not None:
            self._living = None
            self.far_from, self._base = far["from"], far["base"]
            self._columns = {
                name: np.frombuffer(far["columns"][name], np.int64).copy() for name in COLUMNS
            }
            self._early = sorted(hour for hour in self.near if hour >= self.far_from)
