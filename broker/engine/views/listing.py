"""Lists of a topic's messages in due order, a page at a time.

Hour by hour, and in an hour by (due time, log order); rows that are not in files yet included. A
page ends at its limit or when its time is used up, and may be short or empty; the cursor goes on.
Nothing is kept between two pages and no backlog is loaded.

A message is shown once, by its newest row: rows that moved on are passed over. What is sent,
settled or moved between two pages counts as it is when its place is reached.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.views.list_cursor import Place
from delaylog.broker.engine.views.list_filter import ListQuery, RowFilter
from delaylog.broker.engine.views.list_hour import HourList
from delaylog.broker.engine.views.list_page import PAGE_BYTES_MAX, Effort, Page, PageRun
from delaylog.broker.engine.views.list_tail import TailView
from delaylog.storage.layout import HOUR_MAX, HOUR_MS
from delaylog.storage.work import Work


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
        """As a group (absent: the default one) sees it.

        Raises BadRequestError for a cursor that is not this list's.
        """
        self._state = state
        self._group = group or topic.default
        self._filter = RowFilter(query, topic, self._group, now_ms, state.id_hash)
        self._scope = query.scope(topic, self._group)
        self.page = Page()
        place = Place(0) if query.cursor is None else Place.decode(query.cursor, self._scope)
        bytes_max = min(state.limits.receive_bytes_max, PAGE_BYTES_MAX)
        self._run = PageRun(self.page, place, query, bytes_max, effort)

    def work(self) -> Work:
        """Make the page, in slices."""
        run = self._run
        run.begin()
        hours = self._hours()
        for number, hour in enumerate(hours):
            if hour != run.place.hour:
                run.place = Place(hour)
            try:
                done = yield from self._list_hour(hour)
            except _HourGone:
                done = True
            if done:
                run.place = Place(min(hour + 1, HOUR_MAX))
                if number == len(hours) - 1:
                    return
            if run.over or not done:
                self.page.cursor = run.place.encode(self._scope)
                return

    def _hours(self) -> list[int]:
        """Hours that can hold what is asked for, from the place on, in order."""
        wanted, hours = self._filter, self._state.hours
        living = wanted.living_only
        every = self._group.hours if living else hours.counts
        found = np.fromiter(every, np.int64, len(every))
        found = np.sort(found[found >= self._run.place.hour])
        # Rows that were sent below the hour floor stand in a later hour than their due time.
        floor = max(self._state.hour_floor, self._state.hour_floor_top)
        found = found[(found <= floor) | (found * HOUR_MS < wanted.due_to)]
        found = found[(found + 1) * HOUR_MS > wanted.due_from]
        out: list[int] = found.tolist()
        return out

    def _list_hour(self, hour: int) -> Generator[None, None, bool]:
        """Put an hour's rows on the page; whether that was all of them."""
        hours = self._state.hours
        known = hours.counts.get(hour)
        if known is None or known.rows == 0:
            return True
        life = hours.counts.life(hour)
        folder = hours.view(hour)
        if not self._filter.unhandled and folder.states(self._group.number).absent:
            return True
        # Nothing may come between these two: the tail begins behind the last row of the files.
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
