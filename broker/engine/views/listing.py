"""Lists of a topic's messages in due order, a page at a time.

A list goes hour by hour, and within an hour by (due time, log order); rows that are not in files
yet are included. A page ends at its limit or when its time is used up, so it may be short or empty;
its cursor continues the list. Nothing is stored between two pages.

A message is listed once, by its newest row; rows that it has left are skipped. Messages that are
sent, settled or moved between two pages are listed as they are when the list reaches them.

Far hours with few rows each are read together. Timers that are due within a year lie in thousands
of hours, one or two in each. Each hour by itself costs 0.4 ms, most of it for calls of numpy;
together they cost some microseconds a row. The rows are those of one moment. A message that moves
into one of the hours later is treated as one that moves behind the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

import numpy as np

from delaylog.broker.engine.failures.matching import origins_failed_so
from delaylog.broker.engine.lookup.text_entries import candidates
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.views.list_cursor import Cursor
from delaylog.broker.engine.views.list_filter import ListQuery, RowFilter
from delaylog.broker.engine.views.list_found import FoundList
from delaylog.broker.engine.views.list_hour import HourList
from delaylog.broker.engine.views.list_page import PAGE_BYTES_MAX, Effort, Page, PageRun
from delaylog.broker.engine.views.list_tail import TailView
from delaylog.storage.columns.questions import distinct
from delaylog.storage.layout import HOUR_MAX, HOUR_MS, HOUR_SHIFT, NO_TAG, Int64Array
from delaylog.storage.work import IoJob, ReadJob, Work

FEW_ROWS: Final = 32
"""Rows of a sparse hour, at most, of all topics."""
STRETCH_ROWS_MIN: Final = 128
STRETCH_ROWS_MAX: Final = 1_024
"""Rows of the hours that are read together, at most: about a millisecond."""


class _HourGone(Exception):
    """The hour was removed while it was read."""


class Listing:
    """One page of a list; `work` fills `page`."""

    def __init__(
        self,
        state: EngineState,
        topic: Topic,
        query: ListQuery,
        effort: Effort,
        *,
        group: Group | None = None,
        now_ms: int,
    ) -> None:
        """As `group` sees it, or the default group if None.

        Raises BadRequestError for a cursor of another list.
        """
        self._state, self._topic, self._now_ms = state, topic, now_ms
        self._group = group or topic.default
        self._filter = RowFilter(query, topic, self._group, now_ms, state.id_hash)
        self._scope = query.scope(topic, self._group)
        self.page = Page()
        cursor = Cursor(0) if query.cursor is None else Cursor.decode(query.cursor, self._scope)
        self._run = PageRun(self.page, cursor, query, PAGE_BYTES_MAX, effort)

    def work(self) -> Work:
        """Make the page, in slices."""
        run, query = self._run, self._filter.query
        run.begin()
        if not run.cursor.chain:
            # Within a second that is listed newest first, no other order can continue.
            found = candidates(self._state, self._filter.topic, query)
            if query.names_failure:
                found = yield from self._with_failure(found)
            if found is not None:
                if not (yield from self._list_found(found, self._hours)):
                    self.page.cursor = run.cursor.encode(self._scope)
                return
        hours = self._hours()
        at = 0
        while at < len(hours):
            together = sparse_stretch(self._state, hours[at:], run.left)
            if len(together) > 1:
                done = yield from self._list_sparse(together)
            else:
                together = hours[at : at + 1]
                done = yield from self._list_alone(int(together[0]))
            at += len(together)
            if done:
                run.cursor = Cursor(min(int(together[-1]) + 1, HOUR_MAX))
                if at == len(hours):
                    return
            if run.over or not done:
                self.page.cursor = run.cursor.encode(self._scope)
                return

    def _list_alone(self, hour: int) -> Generator[None, None, bool]:
        """Put an hour's rows on the page; returns whether those were all."""
        if hour != self._run.cursor.hour:
            self._run.cursor = Cursor(hour)
        try:
            return (yield from self._list_hour(hour))
        except _HourGone:
            return True

    def _list_sparse(self, hours: Int64Array) -> Generator[None, None, bool]:
        """The same for several hours with few rows."""
        origins = origins_in(self._state, hours, self._filter)
        return (yield from self._list_found(origins, lambda: hours, int(hours[-1])))

    def _with_failure(self, named: Int64Array | None) -> Generator[IoJob, None, Int64Array]:
        """Those of some messages, or of all, whose last failure is as the query says."""
        state, found = self._state, list[Int64Array]()
        place = (self._topic.number, self._group.number)
        self._run.end()
        # A full table takes tens of milliseconds to sort.
        wanted = self._filter.query
        yield ReadJob(lambda: found.append(origins_failed_so(state.failures, *place, wanted)))
        self._run.begin()
        origins = found.pop()
        return origins if named is None else origins[np.isin(origins, named)]

    def _list_found(
        self, origins: Int64Array, hours: Callable[[], Int64Array], until: int = HOUR_MAX
    ) -> Generator[None, None, bool]:
        """Put candidates on the page that are in these hours; returns whether those were all."""
        run = self._run
        found = FoundList(self._state, self._topic, run, self._filter, self._now_ms)
        steps = found.steps(origins, hours, until)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)
            run.end()
            yield None
            run.begin()

    def _hours(self) -> Int64Array:
        """Hours that can contain matching rows, from the cursor on, in order."""
        wanted, hours = self._filter, self._state.hours
        living = wanted.living_only
        every = self._group.hours if living else hours.counts
        found = np.fromiter(every, np.int64, len(every))
        found = np.sort(found[found >= self._run.cursor.hour])
        # A row due below the hour floor is stored in a later hour than that of its due time.
        floor = max(self._state.hour_floor, self._state.hour_floor_top)
        found = found[(found <= floor) | (found * HOUR_MS < wanted.due_to)]
        return found[(found + 1) * HOUR_MS > wanted.due_from]

    def _list_hour(self, hour: int) -> Generator[None, None, bool]:
        """Put an hour's rows on the page; returns whether those were all."""
        hours = self._state.hours
        known = hours.counts.get(hour)
        if known is None or known.rows == 0:
            return True
        life = hours.counts.life(hour)
        folder = hours.view(hour)
        if not self._filter.unhandled and folder.states(self._group.number).absent:
            return True
        # Without a pause in between: the tail must begin behind the last row of the files.
        last = hours.flushed(hour)
        tail = TailView(hours.pile.parts(hour))
        steps = self._read(tail, last, HourList(self._run, self._filter, folder, tail, last))
        try:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return bool(end.value)
                self._run.end()
                yield None
                self._run.begin()
                if hours.counts.life(hour) != life:
                    raise _HourGone
        finally:
            hours.flusher.rest(hour)

    def _read(self, tail: TailView, last: int, hour: HourList) -> Generator[None, None, bool]:
        yield from tail.fill(self._filter.rows, last)
        return (yield from hour.steps())


def sparse_stretch(state: EngineState, hours: Int64Array, wanted: int) -> Int64Array:
    """The first of some ascending hours, as far as all of them are sparse.

    `wanted`: the number of messages that a page has room for.
    """
    rows_max = min(max(2 * wanted, STRETCH_ROWS_MIN), STRETCH_ROWS_MAX)
    first = hours[:rows_max]
    rows = state.hours.counts.row_counts(first)
    sparse = state.hours.counts.far_mask(first) & (rows <= FEW_ROWS)
    sparse &= np.cumsum(rows) <= rows_max
    return first if sparse.all() else first[: int(np.argmin(sparse))]


def origins_in(state: EngineState, hours: Int64Array, wanted: RowFilter) -> Int64Array:
    """The messages, ascending, that have a row in some hours, and may match there."""
    rows = state.hours.counts.row_counts(hours)
    ends = np.cumsum(rows)
    index = np.arange(int(rows.sum()), dtype=np.int64) - np.repeat(ends - rows, rows) + 1
    refs = index | np.repeat(hours, rows) << HOUR_SHIFT
    if not wanted.unhandled:
        # States are small, and few match.
        refs = refs[wanted.stored(state.hours.get_states(refs, wanted.group.number))]
    found = state.hours.rows(refs)
    mask = wanted.rows(found) & (found["epoch_tag"] != NO_TAG)
    return distinct(found["origin"][mask].astype(np.int64))
