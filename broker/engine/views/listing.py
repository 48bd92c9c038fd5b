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

If the index of texts names the few messages that can match, a page is made from these candidates
(`FoundList`). The order and the cursors are the same, so either way may continue where the other
ended. The states of all candidates tell the hours where their messages are now, which costs tens of
nanoseconds each. Hour by hour from the cursor on, rows are then looked up and sorted until the page
is full. A message that moves meanwhile ends the page in front of it, so that the next page finds it
at its new place.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeAlias

import numpy as np

from delaylog.broker.engine.deliver.failure_reasons import origins_failed_so
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.lookup.text_entries import candidates
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.views.list_hour import HourList, TailView
from delaylog.broker.engine.views.list_page import (
    PAGE_BYTES_MAX,
    Cursor,
    Effort,
    Listed,
    ListQuery,
    Page,
    PageRun,
    RowFilter,
    check_heads,
)
from delaylog.storage.columns import Mask, distinct, grouped, take_rows
from delaylog.storage.layout import (
    HOUR_MAX,
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_MASK,
    NO_TAG,
    TEXT_SIZES,
    Int64Array,
    MessageState,
    head_sizes,
)
from delaylog.storage.messages.records import raw_texts
from delaylog.storage.messages.rows import heads_of
from delaylog.storage.work import IoJob, ReadJob, Work

# ----------------------------------------------------------------------- a page from candidates

_LOOK_ROWS: Final = 1_024
_LOOK_HOURS: Final = 16
"""Near hours that a slice looks at: each may have to be opened."""
_TAKE_ROWS: Final = 256
"""Candidates of the next hours that are looked up and sorted together, at least."""
_PUT_ROWS: Final = 64
_ByHour: TypeAlias = dict[int, list[Int64Array]]
_PLACE: Final = np.dtype([("hour", "<i8"), ("due", "<i8"), ("index", "<i8"), ("origin", "<i8")])


class FoundList:
    """The rest of a list whose messages are all among some candidates."""

    def __init__(
        self, state: EngineState, topic: Topic, run: PageRun, filter_: RowFilter, now_ms: int
    ) -> None:
        self._state = state
        self._topic = topic
        self._run = run
        self._filter = filter_
        self._now_ms = now_ms
        self._until = HOUR_MAX

    def steps(
        self, origins: Int64Array, hours: Callable[[], Int64Array], until: int = HOUR_MAX
    ) -> Generator[None, None, bool]:
        """Put messages on the page; returns whether those were all.

        `hours` returns the hours that can have matching messages now. Messages that move behind the
        hour `until` meanwhile are left to who reads there.
        """
        run = self._run
        self._until = until
        by_hour = yield from self._by_hour(origins, hours)
        while by_hour:
            last, taken = _first(by_hour)
            places = yield from self._places(taken, last, by_hour)
            for start in range(0, len(places), _PUT_ROWS):
                part = places[start : start + _PUT_ROWS]
                seen = self._put(part)
                if seen:
                    end = part[seen - 1]
                    run.cursor = Cursor(int(end["hour"]), int(end["due"]), int(end["index"]))
                if seen < len(part):
                    return False
                yield
                if run.over and start + len(part) < len(places):
                    return False
            if by_hour:
                # Also without a match: each page makes some progress.
                run.cursor = Cursor(last + 1)
                if run.over:
                    return False
        return True

    def _by_hour(
        self, origins: Int64Array, hours: Callable[[], Int64Array]
    ) -> Generator[None, None, _ByHour]:
        """The candidates by the hours where their messages are now."""
        out: _ByHour = {}
        for part in _slices(origins, self._state.hours.counts.far_from):
            part = part[np.flatnonzero(self._state.hours.known(part))]
            entries = self._state.hours.get_states(part, self._filter.group.number)
            now = part >> HOUR_SHIFT
            moved = np.flatnonzero(entries["state"] == int(MessageState.MOVED))
            now[moved] = entries["forward"][moved].astype(np.int64) >> HOUR_SHIFT
            at = np.flatnonzero(np.isin(now, hours()))
            for hour, mine in grouped(now[at]):
                out.setdefault(hour, []).append(part[at[mine]])
            self._run.page.scanned += len(part)
            yield
        return out

    def _look(self, origins: Int64Array) -> tuple[FoundMessages, Mask, Int64Array]:
        """Messages as they are now, which of them match, and the state that each is shown with."""
        group = self._filter.group
        found = find_origins(self._state, origins, self._topic, self._now_ms, group)
        rows, entries = found.rows, found.entries
        mask, shown = self._filter.states(
            rows["deliver_at"], rows["expires_at"], rows["sent_position"], entries
        )
        return found, found.known & mask & self._filter.rows(rows), shown

    def _places(
        self, origins: Int64Array, last: int, later: _ByHour
    ) -> Generator[None, None, np.ndarray]:
        """Where the matching messages are, behind the cursor, in the order of the list.

        Those that are in hours after `last` by now are added to `later`.
        """
        cursor = self._run.cursor
        parts = [np.zeros(0, _PLACE)]
        for start in range(0, len(origins), _LOOK_ROWS):
            found, mask, _ = self._look(origins[start : start + _LOOK_ROWS])
            now = found.refs >> HOUR_SHIFT
            for slot in np.flatnonzero(mask & (now > last) & (now <= self._until)).tolist():
                later.setdefault(int(now[slot]), []).append(found.origins[slot : slot + 1])
            at = np.flatnonzero(mask & (now <= last))
            places = np.zeros(len(at), _PLACE)
            places["hour"] = found.refs[at] >> HOUR_SHIFT
            places["due"] = found.rows["deliver_at"][at]
            places["index"] = found.refs[at] & INDEX_MASK
            places["origin"] = found.origins[at]
            hour, due, index = places["hour"], places["due"], places["index"]
            behind = (due > cursor.due) | ((due == cursor.due) & (index > cursor.index))
            parts.append(places[(hour > cursor.hour) | ((hour == cursor.hour) & behind)])
            yield
        places = np.concatenate(parts)
        out: np.ndarray = places[np.lexsort((places["index"], places["due"], places["hour"]))]
        return out

    def _put(self, places: np.ndarray) -> int:
        """Put the messages at these places on the page, as far as they fit; returns how many
        places were passed.
        """
        run, hours = self._run, self._state.hours
        found, mask, shown = self._look(places["origin"].astype(np.int64))
        there = found.refs >> HOUR_SHIFT == places["hour"]
        there &= found.refs & INDEX_MASK == places["index"]
        moved = np.flatnonzero(mask & ~there)
        stop = int(moved[0]) if len(moved) else len(places)
        at = np.flatnonzero(mask[:stop])
        rows, refs = take_rows(found.rows, at), found.refs[at]
        raw = hours.records(refs, heads_of(rows, *TEXT_SIZES))
        heads = list(raw_texts(raw, rows, head_sizes(rows)))
        check_heads(heads, rows, f"{self._state.folder}/hours", self._filter.id_hash)
        for k, head in enumerate(heads):
            if not self._filter.exact(head):
                continue
            if run.full:
                return int(at[k])
            body = None
            if run.query.bodies:
                one = slice(k, k + 1)
                run.body_bytes += int(rows["size"][k])
                if run.page.messages and run.body_bytes > run.bytes_max:
                    return int(at[k])
                body = hours.records(refs[one], rows[one])[int(head_sizes(rows[one])[0]) :]
            slot = int(at[k])
            run.page.messages.append(
                Listed(
                    int(found.origins[slot]),
                    int(refs[k]),
                    rows[k],
                    found.entries[slot],
                    MessageState(int(shown[slot])),
                    head,
                    body,
                )
            )
        return stop


def _slices(origins: Int64Array, far_from: int) -> Iterator[Int64Array]:
    """Ascending origins in slices of bounded numbers of rows and near hours."""
    hours = np.minimum(origins >> HOUR_SHIFT, far_from)
    number = np.cumsum(np.diff(hours, prepend=0) != 0) // _LOOK_HOURS
    ends = np.flatnonzero(np.diff(number)) + 1
    for part in np.split(origins, ends):
        yield from (part[at : at + _LOOK_ROWS] for at in range(0, len(part), _LOOK_ROWS))


def _first(by_hour: _ByHour) -> tuple[int, Int64Array]:
    """Take the first hours out: (the last of them, their candidates)."""
    taken: list[Int64Array] = []
    hour, count = 0, 0
    for hour in sorted(by_hour):
        mine = by_hour.pop(hour)
        taken += mine
        count += sum(map(len, mine))
        if count >= _TAKE_ROWS:
            break
    return hour, np.concatenate(taken)


# -------------------------------------------------------------------------- a page hour by hour

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
