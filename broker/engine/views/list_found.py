"""A page of a list from candidates: the few messages that the index of texts names.

The order and the cursors are those of a list that goes through all messages, so either may continue
where the other ended. The states of all candidates tell the hours where their messages are now,
which costs tens of nanoseconds each. Hour by hour from the cursor on, rows are then looked up and
sorted until the page is full. A message that moves meanwhile ends the page in front of it, so that
the next page finds it at its new place.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeAlias

import numpy as np

from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.views.list_cursor import Cursor
from delaylog.broker.engine.views.list_filter import RowFilter, check_heads
from delaylog.broker.engine.views.list_page import Listed, PageRun
from delaylog.storage.columns.questions import Mask, grouped
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.layout import (
    HOUR_MAX,
    HOUR_SHIFT,
    INDEX_MASK,
    TEXT_SIZES,
    Int64Array,
    MessageState,
    head_sizes,
)
from delaylog.storage.messages.records import raw_texts
from delaylog.storage.messages.rows import heads_of

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
