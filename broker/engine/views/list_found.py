"""A page of a list from candidates: the few messages that the index of texts names.

The order and the cursors are those of a list that goes through all messages, so either may continue
where the other ended. Candidates are looked up where they are now, in slices, and sorted; then the
first ones behind the cursor are looked up again, as they may have changed meanwhile, and put on the
page.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import numpy as np

from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.views.list_cursor import Cursor
from delaylog.broker.engine.views.list_filter import RowFilter, check_heads
from delaylog.broker.engine.views.list_page import Listed, PageRun
from delaylog.storage.columns.questions import Mask
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.layout import (
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
_PUT_ROWS: Final = 64
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

    def steps(self, origins: Int64Array) -> Generator[None, None, bool]:
        """Put messages on the page; returns whether those were all."""
        run = self._run
        places = yield from self._places(origins)
        for start in range(0, len(places), _PUT_ROWS):
            part = places[start : start + _PUT_ROWS]
            seen = self._put(part)
            if seen:
                last = part[seen - 1]
                run.cursor = Cursor(int(last["hour"]), int(last["due"]), int(last["index"]))
            if seen < len(part):
                return False
            yield
            if run.over:
                return start + len(part) == len(places)
        return True

    def _look(self, origins: Int64Array) -> tuple[FoundMessages, Mask, Int64Array]:
        """Messages as they are now, which of them match, and the state that each is shown with."""
        group = self._filter.group
        found = find_origins(self._state, origins, self._topic, self._now_ms, group)
        rows, entries = found.rows, found.entries
        mask, shown = self._filter.states(rows["deliver_at"], rows["sent_position"], entries)
        return found, found.known & mask & self._filter.rows(rows), shown

    def _places(self, origins: Int64Array) -> Generator[None, None, np.ndarray]:
        """Where the matching messages are, behind the cursor, in the order of the list."""
        cursor = self._run.cursor
        parts = [np.zeros(0, _PLACE)]
        for start in range(0, len(origins), _LOOK_ROWS):
            found, mask, _ = self._look(origins[start : start + _LOOK_ROWS])
            at = np.flatnonzero(mask)
            places = np.zeros(len(at), _PLACE)
            places["hour"] = found.refs[at] >> HOUR_SHIFT
            places["due"] = found.rows["deliver_at"][at]
            places["index"] = found.refs[at] & INDEX_MASK
            places["origin"] = found.origins[at]
            hour, due, index = places["hour"], places["due"], places["index"]
            behind = (due > cursor.due) | ((due == cursor.due) & (index > cursor.index))
            parts.append(places[(hour > cursor.hour) | ((hour == cursor.hour) & behind)])
            self._run.page.scanned += len(mask)
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
        # One that has moved meanwhile is listed at its new place, if that is still to come.
        mask &= found.refs >> HOUR_SHIFT == places["hour"]
        mask &= found.refs & INDEX_MASK == places["index"]
        at = np.flatnonzero(mask)
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
        return len(places)
