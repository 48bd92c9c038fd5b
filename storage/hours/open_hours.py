"""Bounds what the hours of a store keep open: descriptors, chain heads and state columns.

Hours register here when they open a file or load heads. Only the thread that owns the store closes
anything, a few hours whenever an hour is requested (`trim`), by the clock algorithm: an hour that
was used since the last check gets a second chance. An hour with unsynced appends is closed by the
flush that wrote it (see `HourFlusher`), never here.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from delaylog.storage.hours.hour_heads import HourHeads
from delaylog.storage.hours.states.dirty_columns import DirtyColumns
from delaylog.storage.hours.states.state_column import StateColumn

HEADS_KEPT_MAX: Final = 1_024
"""Hours whose chain heads stay in memory (28.8 KB each)."""
COLUMNS_KEPT_MAX: Final = 512
"""State columns that stay mapped: each keeps some pages, and bits of the rows it touched."""
_STEP: Final = 4
"""Hours that one `trim` checks: each request for an hour opens one at most."""


class Closable(Protocol):
    """An hour with open files, heads and columns."""

    hour: int
    heads: HourHeads
    used: bool
    """Whether the hour was requested since the last check."""

    def close_idle_files(self) -> bool:
        """Close its files, unless it has unsynced appends; returns whether they are closed."""

    def drop_states(self, group: int) -> None:
        """Drop the state column of a group."""


H = TypeVar("H", bound=Closable)


class OpenHours(Generic[H]):
    """The hours of one store with open descriptors or heads, in the order in which they opened.

    Other threads may register; dict operations are atomic.
    """

    def __init__(self, hours_max: int) -> None:
        self.hours_max = hours_max
        self.files: dict[int, H] = {}
        self.heads: dict[int, H] = {}
        self.columns: dict[StateColumn, tuple[H, int]] = {}
        """State columns in memory, with their hour and group."""
        self.dirty = DirtyColumns[StateColumn]()
        self.near: frozenset[int] = frozenset()
        """Hours that are read all the time: they are never closed."""
        self.grown = False
        """Whether `trim` may have something to do: set with each entry, and while too many stay."""

    @property
    def crowded(self) -> bool:
        """Whether the files, chain heads or state columns exceed their limit."""
        return (
            len(self.files) > self.hours_max
            or len(self.heads) > HEADS_KEPT_MAX
            or len(self.columns) > COLUMNS_KEPT_MAX
        )

    def trim(self) -> None:
        """Close files and columns and forget heads of a few hours, if there are too many."""
        if len(self.files) > self.hours_max:
            for hour in list(islice(self.files.values(), _STEP)):
                if not self._spared(hour) and hour.close_idle_files():
                    continue
                _requeue(self.files, hour)
        if len(self.heads) > HEADS_KEPT_MAX:
            for hour in list(islice(self.heads.values(), _STEP)):
                if not self._spared(hour):
                    hour.heads.drop()
                if hour.heads.loaded:
                    _requeue(self.heads, hour)
        if len(self.columns) > COLUMNS_KEPT_MAX:
            for column, (hour, group) in list(islice(self.columns.items(), _STEP)):
                used, column.used = column.used, False
                if not used and column.idle:
                    hour.drop_states(group)
                else:
                    self.columns.pop(column)
                    self.columns[column] = (hour, group)
        self.grown = self.crowded

    def let_go(self, column: StateColumn) -> None:
        """Drop a column that was just written, if there are too many."""
        if len(self.columns) > COLUMNS_KEPT_MAX and column in self.columns and column.idle:
            hour, group = self.columns[column]
            hour.drop_states(group)

    def _spared(self, hour: H) -> bool:
        used, hour.used = hour.used, False
        return used or hour.hour in self.near

    def oldest(self) -> list[H]:
        """Hours to close, oldest first, so that three quarters of the limit stay open."""
        if len(self.files) <= self.hours_max:
            return []
        open_hours = [hour for hour in list(self.files.values()) if hour.hour not in self.near]
        return open_hours[: len(self.files) - self.hours_max * 3 // 4]

    def oldest_heads(self) -> list[H]:
        """Hours whose heads to drop, oldest first; see `oldest`."""
        if len(self.heads) <= HEADS_KEPT_MAX:
            return []
        with_heads = [hour for hour in list(self.heads.values()) if hour.hour not in self.near]
        return with_heads[: len(self.heads) - HEADS_KEPT_MAX * 3 // 4]


def _requeue(queue: dict[int, H], hour: H) -> None:
    if queue.pop(hour.hour, None) is not None:
        queue[hour.hour] = hour
