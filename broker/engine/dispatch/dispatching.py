"""Dispatch: from durable rows to ready queues, through the wheel.

`commit` shows durable rows to the wheel; `dispatch` turns it and moves what is due into the ready
queues. What the wheel asks for meanwhile is loaded in the background (loading.py).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from delaylog.broker.engine.deliver.waking import known_rows
from delaylog.broker.engine.dispatch.loading import Loader
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.ready.held_back import HeldBack
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.questions import alike, every, grouped, some
from delaylog.storage.layout import (
    HOUR_MS,
    STATE_NONE,
    Int64Array,
)
from delaylog.storage.log.frames import Tick
from delaylog.wheel import Entries, join_entries

RELEASE_MAX: Final = 16_384
DUE_SECONDS: Final = 1.0
"""Who does not wait still waits that long for what was due when it asked: older messages of other
topics may have to be released first, or loaded."""
LOADING_SECONDS: Final = 0.002
"""Poll interval while messages are being loaded."""


class Dispatcher:
    """Drives the wheel of one engine."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._wheel = state.wheel
        self.loader = Loader(state, state.wheel)
        """What is to be run in the background."""
        self._held = HeldBack(partial(state.make_run, 0), partial(known_rows, state))
        self._near_hour = -1

    # ------------------------------------------------------------------ on the loop

    def start(self, now_ms: int, *, shown_position: int = 0) -> None:
        """After recovery: every hour with living rows enters the wheel.

        `shown_position` = up to where rows were shown before, to one who drove until now.
        """
        state = self._state
        self._wheel.note_hours(state.hours.counts.living_hours().tolist())
        self.loader.now_ms = now_ms
        self.loader.shown_position = max(state.committed(), shown_position)
        self._move_near(now_ms // HOUR_MS)

    def retire(self) -> int:
        """Another one takes over: what still runs in the background finds nothing to do.

        Returns up to where rows were shown; with the lax fsync dial that is ahead of the disk,
        and they are not shown again.
        """
        self.loader.retire()
        self._held.clear()
        return self.loader.shown_position

    def commit(self, position: int, now_ms: int) -> None:
        """Rows of frames below `position` become visible to the wheel."""
        state = self._state
        while state.exposures and state.exposures[0].end_position <= position:
            exposure = state.exposures.popleft()
            self.loader.shown_position = exposure.end_position
            self._wheel.add(
                now_ms, exposure.seconds, exposure.entries, due_span_ms=exposure.due_span_ms
            )

    def next_wake_ms(self) -> int | None:
        """When `dispatch` has something to do."""
        if len(self._held) and self._held.frees_some(self._line_ms()):
            return self.loader.now_ms
        return self._wheel.next_wake_ms()

    def unloaded_ms(self) -> int | None:
        """Lower bound of the due times of messages that are still being loaded, or None."""
        return self._wheel.unloaded_ms()

    def _line_ms(self) -> int | None:
        """Everything due before it has been released; None if that is all there is."""
        wake_ms, unloaded_ms = self._wheel.next_wake_ms(), self._wheel.unloaded_ms()
        if wake_ms is None or wake_ms > self.loader.now_ms:
            return unloaded_ms
        return wake_ms if unloaded_ms is None else min(wake_ms, unloaded_ms)

    def dispatch(self, now_ms: int) -> int:
        """Turn the wheel once: release what is due (a bounded slice); returns how many."""
        state = self._state
        self.loader.now_ms = max(now_ms, self.loader.now_ms)
        self._move_near(self.loader.now_ms // HOUR_MS)
        turn = self._wheel.turn(now_ms, RELEASE_MAX)
        if turn.open_hours:
            self.loader.open_hours(turn.open_hours, now_ms)
        if turn.load_seconds:
            self.loader.load_seconds(turn.load_seconds, now_ms)
        released = turn.released
        if released.count:
            assert int(released.due_ms.max()) <= self.loader.now_ms, "never early"
        count = released.count
        if count or len(self._held):
            self._release(released)
        if count < RELEASE_MAX:
            state.dispatched = (self.loader.now_ms, self.loader.shown_position)
        second, local_index = self._wheel.tick()
        state.tick = Tick(second, local_index, state.committed())
        return count

    def _release(self, released: Entries) -> None:
        """What is due becomes ready, but for what has a key while older ones are being loaded."""
        unloaded_ms = self._wheel.unloaded_ms()
        if released.count and (len(self._held) or unloaded_ms is not None):
            released = self._held.sift(released, unloaded_ms)
        if len(self._held):
            freed = self._held.take(self._line_ms(), RELEASE_MAX - released.count)
            released = join_entries([released, freed])
        if released.count:
            self._make_ready(released)

    def _move_near(self, hour: int) -> None:
        """The hours now and next are read through maps."""
        if hour != self._near_hour:
            self._near_hour = hour
            self._state.hours.set_near((hour, hour + 1))
            self._wheel.drop_hours_below(hour - 1)

    def _make_ready(self, entries: Entries) -> None:
        state = self._state
        refs, lanes = entries.refs, entries.lanes
        if state.special:
            special = state.special_mask(lanes)
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

    def _push(self, number: int, refs: Int64Array, due_ms: Int64Array) -> None:
        topic = self._state.by_number.get(number)
        if topic is not None:
            self._push_to(topic, topic.default, refs)
            self._state.activity(topic).note_released(due_ms, self.loader.now_ms)

    def _push_to(self, topic: Topic, group: Group, refs: Int64Array) -> None:
        rows = None if group.ready.order is None else self._state.hours.rows(refs)
        group.ready.push(refs, rows)
        self._state.woken.add((topic.number, group.number))

    def _make_special_ready(self, entries: Entries) -> None:
        """Messages of topics with several groups or a floor: each group takes what is its own."""
        state = self._state
        for number, mine in grouped(entries.lanes):
            topic = state.by_number.get(number)
            if topic is None:
                continue
            refs, due_ms = entries.refs[mine], entries.due_ms[mine]
            suspect = topic.default.suspect_until_ms
            # Behind the last purge's reach all that was loaded was looked at as it was loaded; but
            # rows of a group that is gone may have come live.
            plain = topic.plain and not topic.had_groups and int(due_ms.min()) > suspect
            rows = None if plain else state.hours.rows(refs)
            for group in topic.groups.values():
                entries_now = state.hours.get_states(refs, group.number)
                if rows is None:
                    free = entries_now["state"] == STATE_NONE
                else:
                    free = group.free(rows, entries_now)
                if some(free):
                    self._push_to(topic, group, refs[free])
            state.activity(topic).note_released(due_ms, self.loader.now_ms)
