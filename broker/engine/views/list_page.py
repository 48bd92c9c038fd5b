"""One page of a list while it is made: its messages, its time limit and its cursor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from delaylog.broker.engine.model import FoundMessage
from delaylog.broker.engine.views.list_cursor import Cursor
from delaylog.broker.engine.views.list_filter import ListQuery
from delaylog.storage.layout import Int64Array
from delaylog.storage.messages.records import RawTexts

PAGE_BYTES_MAX: Final = 8 << 20
"""Bodies on one page, after the first: bounds its memory, in all forms, to 50 MiB."""
PAGE_SECONDS: Final = 0.05
"""Time after which a page ends; a slice that has begun is finished, within 0.1 s in all."""
SCAN_ROWS_MAX: Final = 524_288
"""Candidates of an hour that are read for one page, at most: about 40 ms."""
SECOND_ROWS_MAX: Final = 16_384
"""Rows of a second that are sorted for a page, at most; larger seconds are listed unsorted."""


@dataclass(frozen=True, slots=True)
class Listed(FoundMessage):
    """One message, with its texts and, if requested, its body."""

    head: RawTexts
    body: bytes | None


@dataclass(slots=True)
class Page:
    """Messages in the order of the list, and the cursor of the next page; None at the end."""

    messages: list[Listed] = field(default_factory=list)
    cursor: str | None = None
    scanned: int = 0
    """Rows examined for it."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits on the work for one page."""

    clock: Callable[[], float]
    """Returns seconds."""
    seconds_max: float = PAGE_SECONDS
    scan_rows_max: int = SCAN_ROWS_MAX
    second_rows_max: int = SECOND_ROWS_MAX


@dataclass(slots=True)
class PageRun:
    """The progress of a page."""

    page: Page
    cursor: Cursor
    query: ListQuery
    bytes_max: int
    effort: Effort
    body_bytes: int = 0
    _spent: float = 0.0
    _began: float = 0.0

    def begin(self) -> None:
        """Start its clock."""
        self._began = self.effort.clock()

    def end(self) -> None:
        """Stop its clock while other work runs."""
        self._spent += self.effort.clock() - self._began

    @property
    def left(self) -> int:
        """Number of messages that still fit."""
        return self.query.limit - len(self.page.messages)

    @property
    def full(self) -> bool:
        """Whether no message fits any more."""
        return self.left <= 0 or self.body_bytes >= self.bytes_max

    @property
    def over(self) -> bool:
        """Whether it is full or its time is up."""
        spent = self._spent + self.effort.clock() - self._began
        return self.full or spent >= self.effort.seconds_max


class Smallest:
    """The first `count` of many rows by (due, index), in bounded memory."""

    _REDUCE_ROWS: Final = 65_536

    def __init__(self, count: int) -> None:
        self._count = count
        self._due: list[Int64Array] = []
        self._index: list[Int64Array] = []
        self._buffered = 0
        self.total = 0

    def add(self, due: Int64Array, index: Int64Array) -> None:
        """Add rows."""
        if len(due):
            self._due.append(due)
            self._index.append(index)
            self._buffered += len(due)
            self.total += len(due)
            if self._buffered > self._count + self._REDUCE_ROWS:
                self.first()

    def first(self) -> tuple[Int64Array, Int64Array]:
        """(due, index) of the first rows, in order."""
        if not self._due:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        due, index = np.concatenate(self._due), np.concatenate(self._index)
        if len(due) > self._count:
            near = due <= np.partition(due, self._count - 1)[self._count - 1]
            due, index = due[near], index[near]
        order = np.lexsort((index, due))[: self._count]
        due, index = due[order], index[order]
        self._due, self._index, self._buffered = [due], [index], len(due)
        return due, index
