"""Dispatch: from committed rows to ready queues, through the wheel.

`commit` shows committed rows to the wheel. `dispatch` turns the wheel and moves due refs into the
ready queues. The hours and seconds that the wheel requests are loaded in the background
(loader.py).
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np

from delaylog.broker.engine.deliver.loader import Loader
from delaylog.broker.engine.deliver.ready_again import known_rows
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.ready.deferred import DeferredMessages
from delaylog.broker.engine.ready.fifo_queue import Refs
from delaylog.broker.engine.state import EngineState, FewExposure
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import alike, every, grouped, some
from delaylog.storage.layout import HOUR_MS, SECOND_MS, STATE_NONE, Int64Array, RowArray
from delaylog.storage.log.frames import Tick
from delaylog.wheel import Entries, Entry, join_entries

RELEASE_MAX: Final = 16_384
DUE_SECONDS: Final = 1.0
"""A receive without a wait still waits this long for messages that were due when it was called:
older messages of other topics may have to be released, or loaded, first."""
LOADING_SECONDS: Final = 0.002
"""Poll interval while messages are being loaded."""


class Dispatcher:
    """Drives the wheel of one engine."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._wheel = state.wheel
        self.loader = Loader(state, state.wheel)
        """Its work must be run in the background."""
        self._deferred = DeferredMessages(partial(state.make_run, 0), partial(known_rows, state))
        self._near_hour = -1
        self._new_from_ms = 0
        """Messages due before this were released by an earlier dispatcher: they are ready again,
        not late."""
        self._loading_ms: int | None = None
        """Since when messages that are due are still being loaded."""

    # ------------------------------------------------------------------ on the loop

    def start(self, now_ms: int, *, shown_position: int = 0, done_second: int = 0) -> None:
        """After recovery: tell the wheel of every hour with living rows.

        `shown_position` = up to where an earlier dispatcher of this state has shown rows;
        `done_second` = the second that earlier dispatchers had reached, if the log does not tell.
        """
        state = self._state
        self._new_from_ms = min(max(state.tick.second, done_second) * SECOND_MS, now_ms)
        self._wheel.note_hours(state.hours.counts.living_hours().tolist())
        self.loader.now_ms = now_ms
        self.loader.shown_position = max(state.committed(), shown_position)
        self._move_near(now_ms // HOUR_MS)

    def retire(self) -> int:
        """Stop: background work that still runs finds nothing to do.

        Returns up to where rows were shown. Without fsync on commit that is ahead of the disk, and
        these rows must not be shown again.
        """
        self.loader.retire()
        self._deferred.clear()
        return self.loader.shown_position

    def commit(self, position: int, now_ms: int) -> None:
        """Show the rows of frames below `position` to the wheel."""
        exposures = self._state.exposures
        while exposures and exposures[0].end_position <= position:
            exposure = exposures.popleft()
            self.loader.shown_position = exposure.end_position
            if isinstance(exposure, FewExposure):
                self._wheel.add_few(now_ms, exposure.entries)
            else:
                self._wheel.add(
                    now_ms, exposure.seconds, exposure.entries, due_span_ms=exposure.due_span_ms
                )

    def next_wake_ms(self) -> int | None:
        """When `dispatch` has something to do next; None if nothing is known to come."""
        if self._deferred and self._deferred.frees_some(self._line_ms()):
            return self.loader.now_ms
        return self._wheel.next_wake_ms()

    def unloaded_ms(self) -> int | None:
        """Lower bound of the due times of messages that are still being loaded, or None."""
        return self._wheel.unloaded_ms()

    def _line_ms(self) -> int | None:
        """Everything due before this time has been released; None = everything there is."""
        wake_ms, unloaded_ms = self._wheel.next_wake_ms(), self._wheel.unloaded_ms()
        if wake_ms is None or wake_ms > self.loader.now_ms:
            return unloaded_ms
        return wake_ms if unloaded_ms is None else min(wake_ms, unloaded_ms)

    def dispatch(self, now_ms: int) -> int:
        """Turn the wheel once: release due messages, a bounded number; returns how many."""
        state, wheel = self._state, self._wheel
        self.loader.now_ms = line_ms = max(now_ms, self.loader.now_ms)
        if line_ms // HOUR_MS != self._near_hour:
            self._move_near(line_ms // HOUR_MS)
        turn = wheel.turn(now_ms, RELEASE_MAX)
        if turn.open_hours:
            self.loader.open_hours(turn.open_hours, now_ms)
        if turn.load_seconds:
            self.loader.load_seconds(turn.load_seconds, now_ms)
        few, released = turn.few, turn.released
        if few:
            count, oldest_ms = len(few), min(few)[0]
            assert max(few)[0] <= line_ms, "never early"
        elif released.count:
            count, oldest_ms = released.count, int(released.due_ms.min())
            assert int(released.due_ms.max()) <= line_ms, "never early"
        else:
            count, oldest_ms = 0, now_ms
        unloaded_ms = wheel.unloaded_ms()
        if self._deferred:
            self._release(turn.all(), unloaded_ms)
            # Deferred messages have waited for a load, so loading has lasted up to this turn.
            oldest_ms = 0
        elif few and unloaded_ms is None:
            self._make_few_ready(few)
        elif count:
            self._release(turn.all(), unloaded_ms)
        if self._loading_ms is not None or unloaded_ms is not None:
            self._note_loading(now_ms, oldest_ms, unloaded_ms)
        if count < RELEASE_MAX:
            state.released_upto = (line_ms, self.loader.shown_position)
        state.tick = Tick(*wheel.tick(), state.committed())
        return count

    def _note_loading(self, now_ms: int, oldest_ms: int, unloaded_ms: int | None) -> None:
        """Tell the timeline that due messages are being loaded, also when it has just ended.

        A load that brings nothing may have ended long before this turn. So an end is told from
        `oldest_ms` on, the earliest due time of what this turn has released.
        """
        loads = unloaded_ms is not None and unloaded_ms < now_ms
        if self._loading_ms is not None:
            from_ms = self._loading_ms if loads else max(self._loading_ms, oldest_ms)
            self._state.timeline.node("loading", from_ms, now_ms)
        if not loads:
            self._loading_ms = None
        elif self._loading_ms is None:
            self._loading_ms = now_ms

    def _release(self, released: Entries, unloaded_ms: int | None) -> None:
        """Make due messages ready, or defer keyed ones while older ones are being loaded."""
        if released.count and (self._deferred or unloaded_ms is not None):
            released = self._deferred.sift(released, unloaded_ms)
        if self._deferred:
            freed = self._deferred.take(self._line_ms(), RELEASE_MAX - released.count)
            released = join_entries([released, freed])
        if released.count:
            self._make_ready(released)

    def _move_near(self, hour: int) -> None:
        """Map the files of this hour and the next into memory."""
        self._near_hour = hour
        self._state.hours.set_near((hour, hour + 1))
        self._wheel.drop_hours_below(hour - 1)

    def _make_ready(self, entries: Entries) -> None:
        state = self._state
        refs, lanes = entries.refs, entries.lanes
        if state.marks.special:
            special = state.marks.special_among(lanes)
            if some(special):
                self._make_special_ready(Entries(*(column[special] for column in entries)))
                entries = Entries(*(column[~special] for column in entries))
                refs, lanes = entries.refs, entries.lanes
        living = state.hours.get_states(refs)["state"] == STATE_NONE
        if not every(living):
            refs, lanes = refs[living], lanes[living]
        if len(refs) == 0:
            return
        due_ms = entries.due_ms if every(living) else entries.due_ms[living]
        if alike(lanes):
            self._push(int(lanes[0]), refs, due_ms)
            return
        for number, mine in grouped(lanes):
            self._push(number, refs[mine], due_ms[mine])

    def _make_few_ready(self, entries: list[Entry]) -> None:
        """`_make_ready` for a few messages, one by one."""
        state = self._state
        for number, same in groupby(entries, itemgetter(2)):
            if number in state.marks.special:
                self._make_few_special_ready(number, list(same))
                continue
            living: list[Entry] = []
            refs: list[int] = []
            for entry in same:
                if not state.hours.has_state(entry[1]):
                    living.append(entry)
                    refs.append(entry[1])
            topic = state.by_number.get(number)
            if living and topic is not None:
                self._push_to(topic, topic.default, refs, self._watch(topic, refs, None))
                self._note_few_released(topic, living)

    def _note_few_released(self, topic: Topic, entries: list[Entry]) -> None:
        """`_note_released` for a few messages."""
        now_ms, from_ms = self.loader.now_ms, self._new_from_ms
        activity = self._state.activity(topic)
        late = self._state.series.lateness_of(topic).ready
        for due_ms, _, _ in entries:
            activity.note_one(now_ms - due_ms)
            if due_ms >= from_ms:
                late.note(now_ms - due_ms)

    def _push(self, number: int, refs: Int64Array, due_ms: Int64Array) -> None:
        topic = self._state.by_number.get(number)
        if topic is not None:
            self._push_to(topic, topic.default, refs, self._watch(topic, refs, None))
            self._note_released(topic, due_ms)

    def _note_released(self, topic: Topic, due_ms: Int64Array) -> None:
        """Count messages as released, and how late those are that were not released before."""
        now_ms = self.loader.now_ms
        self._state.activity(topic).note_released(due_ms, now_ms)
        if due_ms[0] < self._new_from_ms:
            # The first one is the oldest one, or nearly: releases are in order of due seconds.
            due_ms = due_ms[due_ms >= self._new_from_ms]
            if not len(due_ms):
                return
        self._state.series.lateness_of(topic).ready.note_late(due_ms, now_ms)

    def _watch(self, topic: Topic, refs: Refs, rows: RowArray | None) -> RowArray | None:
        """Watch messages that may expire; returns their rows if they are known by now."""
        if topic.number in self._state.marks.timed and len(refs):
            refs = np.asarray(refs, np.int64)
            rows = self._state.hours.rows(refs) if rows is None else rows
            self._state.expiries.add(topic.expiry_owner, refs, rows)
        return rows

    def _push_to(
        self, topic: Topic, group: Group, refs: Refs, rows: RowArray | None = None
    ) -> None:
        ready = group.ready
        if rows is None and ready.order is not None:
            rows = self._state.hours.rows(np.asarray(refs, np.int64))
        ready.push(refs, rows)
        self._state.marks.newly_ready.add((topic.number, group.number))

    def _make_special_ready(self, entries: Entries) -> None:
        """Make messages of special topics ready in each group in which they live."""
        state = self._state
        for number, mine in grouped(entries.lanes):
            topic = state.by_number.get(number)
            if topic is None:
                continue
            refs, due_ms = entries.refs[mine], entries.due_ms[mine]
            suspect = topic.default.suspect_until_ms
            # Later than `suspect`, loading has already left out what the last purge ended. But rows
            # of a dropped group may have come straight from a send.
            plain = topic.plain and not topic.had_groups and int(due_ms.min()) > suspect
            rows = None if plain else state.hours.rows(refs)
            self._watch(topic, refs, rows)
            living = np.zeros(len(refs), np.bool_)
            for group in topic.groups.values():
                entries_now = state.hours.get_states(refs, group.number)
                if rows is None:
                    free = entries_now["state"] == STATE_NONE
                else:
                    free = group.free(rows, entries_now)
                if some(free):
                    self._push_to(topic, group, refs[free])
                    living |= free
            if some(living):
                self._note_released(topic, due_ms[living])

    def _make_few_special_ready(self, number: int, entries: list[Entry]) -> None:
        """`_make_special_ready` for a few messages of one topic."""
        state = self._state
        topic = state.by_number.get(number)
        if topic is None:
            return
        refs = np.array([ref for _, ref, _ in entries], np.int64)
        suspect = topic.default.suspect_until_ms
        plain = topic.plain and not topic.had_groups and min(entries)[0] > suspect
        rows = None if plain else state.hours.rows(refs)
        self._watch(topic, refs, rows)
        living: set[int] = set()
        for group in topic.groups.values():
            # Rows at or above the floor were sent since the group began, and no purge ended them:
            # of `Group.free` that leaves the state and the row's own group.
            if rows is None or int(rows["sent_position"].min()) >= group.floor:
                free = [
                    at
                    for at, (_, ref, _) in enumerate(entries)
                    if not state.hours.has_state(ref, group.number)
                    and (rows is None or int(rows["group"][at]) in (0, group.number))
                ]
            else:
                found = state.hours.get_states(refs, group.number)
                free = np.flatnonzero(group.free(rows, found)).tolist()
            if free:
                self._push_to(topic, group, refs[free])
                living.update(free)
        if living:
            self._note_few_released(topic, [entries[at] for at in sorted(living)])
