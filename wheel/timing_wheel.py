"""The two-level timing wheel: hour slots, second slots, and the delay queue that wakes them.

Hour level: one slot for each hour that has stored entries. `OPEN_AHEAD_MS` before an hour begins,
its slot expires and the wheel asks the host to open the hour; with the answer (`hour_opened`) the
hour moves to the second level, a ring of 3,600 slots of one second. `PRELOAD_MS` before a second
with stored entries begins, its slot expires and the wheel asks the host to load it. Loaded entries
are released at their due millisecond, never before. Entries that are due as they come are left to
the next turn without a slot. A slot enters the delay queue when it gets its first entry, so nothing
runs while nothing is due. The wheel has only refs: it releases entries that were cancelled
meanwhile, too, and the host discards them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from delaylog.wheel.delay_queue import DelayQueue
from delaylog.wheel.second_slot import (
    FEW_ENTRIES_MAX,
    NO_ENTRIES,
    ROW_MASK,
    Entries,
    Entry,
    Int64Array,
    SecondSlot,
    entries_of,
    join_entries,
    list_of,
    sort_entries,
)

# Far hours of the wheel: which hours beyond the next two days have stored entries.
#
# They are the third and coarsest level of the wheel: a flag for each hour, without an expiration.
# So an hour far ahead costs one byte, where a slot in the delay queue costs some 300.

_GROWTH = 1_024


class FarSlots:
    """A set of hours, as flags."""

    def __init__(self) -> None:
        self._base = 0
        self._flags: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    def add(self, hours: npt.NDArray[np.int64]) -> None:
        """Flag hours that have entries; an hour may be listed several times."""
        low, high = int(hours.min()), int(hours.max())
        size = len(self._flags)
        if size == 0:
            self._base = low
        if low < self._base or high >= self._base + size:
            base = min(self._base, low)
            grown = np.zeros(max(self._base + size, high + 1 + _GROWTH) - base, np.bool_)
            grown[self._base - base : self._base - base + size] = self._flags
            self._base, self._flags = base, grown
        self._flags[hours - self._base] = True

    def __contains__(self, hour: int) -> bool:
        at = hour - self._base
        return 0 <= at < len(self._flags) and bool(self._flags[at])

    def first(self) -> int | None:
        """The first hour, or None."""
        at = int(self._flags.argmax()) if len(self._flags) else 0
        return self._base + at if len(self._flags) and self._flags[at] else None

    def pop_upto(self, hour: int) -> list[int]:
        """Remove and return the hours up to `hour`, ascending."""
        stop = min(max(hour + 1 - self._base, 0), len(self._flags))
        at = np.flatnonzero(self._flags[:stop])
        self._flags[:stop] = False
        return (at + self._base).tolist()


SECOND_MS: Final = 1_000
HOUR_MS: Final = 3_600_000
HOUR_SECONDS: Final = 3_600
PRELOAD_MS: Final = 10_000
OPEN_AHEAD_MS: Final = 60_000
assert OPEN_AHEAD_MS >= PRELOAD_MS, "an hour is open before its first second is loaded"
FAR_HOURS: Final = 48
"""Hours further ahead than this have a flag instead of a slot."""
_FAR: Final = -1
_HOUR: Final = 0
_LOAD: Final = 1
_RELEASE: Final = 2


def _distinct(values: Int64Array) -> list[int]:
    # With counts, `np.unique` sorts; without, it hashes, which costs five times as much.
    found: list[int] = np.unique(values, return_counts=True)[0].tolist()
    return found


_Part: TypeAlias = Entries | list[Entry]
"""Due entries of one slot, or the bypassing ones."""


class WheelTurn:
    """The result of a turn: hours to open, seconds to load, soonest first, and due entries.

    The due entries are in `few` if they are not more than `FEW_ENTRIES_MAX`, else in `released`.
    """

    __slots__ = ("few", "load_seconds", "open_hours", "released")

    def __init__(self) -> None:
        self.open_hours: list[int] = []
        self.load_seconds: list[int] = []
        self.few: list[Entry] = []
        self.released: Entries = NO_ENTRIES

    def all(self) -> Entries:
        """All due entries as columns."""
        return entries_of(self.few) if self.few else self.released

    def release(self, parts: list[_Part], count: int) -> None:
        """Set the due entries, which are `count`, from parts in their order."""
        if count > FEW_ENTRIES_MAX:
            columns = [entries_of(part) if isinstance(part, list) else part for part in parts]
            self.released = join_entries(columns)
        elif len(parts) == 1 and isinstance(parts[0], list):
            self.few = parts[0]
        else:
            for part in parts:
                self.few += part if isinstance(part, list) else list_of(part)


class TimingWheel:
    """The wheel; see the module. The caller passes the time, which the wheel never moves back."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        """The greatest time that any call has passed."""
        self._hours: set[int] = set()
        self._far = FarSlots()
        self._opened: set[int] = set()
        self._opening: set[int] = set()
        self._stored_from: dict[int, int] = {}
        self._ring: list[list[SecondSlot]] = [[] for _ in range(HOUR_SECONDS)]
        self._loading: set[int] = set()
        self._queue: DelayQueue[tuple[int, int]] = DelayQueue()
        self._released_second = 0
        self._released_count = 0
        self.turns = 0
        """How often a slot expired: it does not grow while nothing is due."""
        self._bypassing: list[tuple[int, Entries]] = []
        """(second, entries) of frames that were due as they came, see `_bypass`."""
        self._bypassing_few: list[Entry] = []
        """Entries of small frames that were due as they came, of any seconds."""
        self._bypassing_count = 0
        self._bypassing_ms = 0
        """Least due time of both kinds."""
        self._tick = (0, 0)

    # ------------------------------------------------------------------ time

    def frontier(self) -> int:
        """First second whose new entries are left to storage; earlier ones take them live."""
        return (self.now_ms + PRELOAD_MS) // SECOND_MS + 1

    def next_wake_ms(self) -> int | None:
        """When `turn` next has something to do, or None."""
        return self._bypassing_ms if self._bypassing_count else self._queue.head_ms

    def tick(self) -> tuple[int, int]:
        """(second, count): all earlier seconds are released, and `count` entries of this one.

        It never goes back: an entry added after its second has passed is released at once and
        does not count.
        """
        second = self.now_ms // SECOND_MS
        head = self.next_wake_ms()
        if head is not None:
            # Expired slots that wait for their turn have no entries of an earlier second.
            second = min(second, head // SECOND_MS)
        unloaded_ms = self.unloaded_ms()
        if unloaded_ms is not None:
            second = min(second, unloaded_ms // SECOND_MS)
        count = self._released_count if self._released_second == second else 0
        self._tick = max(self._tick, (second, count))
        return self._tick

    def unloaded_ms(self) -> int | None:
        """Lower bound of the due times that the host is still loading, or None."""
        if not (self._loading or self._opening):
            return None
        seconds = [min(self._loading)] if self._loading else []
        if self._opening:
            seconds.append(min(self._opening) * HOUR_SECONDS)
        return min(seconds) * SECOND_MS

    # ------------------------------------------------------------------ what is there

    def note_hours(self, hours: Iterable[int], stored_from: int = 0) -> None:
        """Note hours that have stored entries, all of them in seconds from `stored_from` on."""
        self._slot_bypassing()
        last = self._last_near_hour()
        new = set(hours) - self._hours - self._opened - self._opening
        far = [hour for hour in new if hour > last]
        if far:
            self._note_far(np.array(far, np.int64))
        for hour in new.difference(far):
            self._hours.add(hour)
            self._stored_from[hour] = stored_from
            self._queue.push((_HOUR, hour), hour * HOUR_MS - OPEN_AHEAD_MS)

    def _last_near_hour(self) -> int:
        """The last hour that gets a slot."""
        return self.now_ms // HOUR_MS + FAR_HOURS

    def _note_far(self, hours: Int64Array) -> None:
        """Flag far hours, which become slots when they come nearer.

        All entries of such a slot are stored: each was added before its second was near.
        """
        self._far.add(hours)
        first = self._far.first()
        assert first is not None, "some were flagged"
        self._queue.push((_FAR, 0), (first - FAR_HOURS) * HOUR_MS)

    def _slot_far_hours(self) -> None:
        """Give slots to the far hours that have come nearer."""
        self.note_hours(self._far.pop_upto(self._last_near_hour()))
        first = self._far.first()
        if first is not None:
            self._queue.push((_FAR, 0), (first - FAR_HOURS) * HOUR_MS)

    def add(
        self,
        now_ms: int,
        seconds: Int64Array,
        entries: Entries,
        *,
        due_span_ms: tuple[int, int] | None = None,
    ) -> None:
        """Add the entries of a committed frame, in log order.

        `seconds` = the second in whose chain each entry is stored. Entries of near seconds are
        added live; entries of later seconds only mark their slot, and storage keeps them.
        `due_span_ms` = the least and greatest due time, if known. It is given only when every
        entry is stored in the second of its due time.
        """
        self.now_ms = max(self.now_ms, now_ms)
        if entries.count == 0:
            return
        if due_span_ms is None:
            low, high = int(seconds.min()), int(seconds.max())
        else:
            low, high = due_span_ms[0] // SECOND_MS, due_span_ms[1] // SECOND_MS
        if low == high and self._bypass(low, entries, due_span_ms):
            return
        self._slot_bypassing()
        frontier = self.frontier()
        if low == high:
            if low < frontier:
                self._insert(low, entries)
            else:
                self._mark([low])
        elif low >= frontier:
            self._mark_many(seconds, low, high)
        else:
            near = seconds < frontier
            for second in _distinct(seconds[near]):
                mask = seconds == second
                self._insert(second, Entries(*(column[mask] for column in entries)))
            if high >= frontier:
                self._mark_many(seconds[~near], frontier, high)

    def add_few(self, now_ms: int, entries: Iterable[Entry]) -> None:
        """Add the entries of a small committed frame, each stored in the second of its due time."""
        self.now_ms = now_ms = max(self.now_ms, now_ms)
        frontier = self.frontier()
        for entry in entries:
            due_ms = entry[0]
            second = due_ms // SECOND_MS
            if second >= frontier:
                if second // HOUR_SECONDS not in self._hours:
                    self._mark([second])
            elif due_ms > now_ms:
                self._insert_one(second, entry)
            elif self._may_bypass():
                slot = self._slot_to_note(second)
                if slot is not None:
                    slot.note_live(entry[1])
                self._bypassing_few.append(entry)
                self._note_bypassing(1, due_ms)
            else:
                self._slot_bypassing()
                self._insert_one(second, entry)

    def _bypass(self, second: int, entries: Entries, due_span_ms: tuple[int, int] | None) -> bool:
        """Leave due entries of one second to the next turn without a slot; False if not allowed."""
        if second >= self.frontier() or not self._may_bypass():
            return False
        if due_span_ms is None:
            due_span_ms = int(entries.due_ms.min()), int(entries.due_ms.max())
        if due_span_ms[1] > self.now_ms:
            return False
        slot = self._slot_to_note(second)
        if slot is not None:
            slot.note_live(int((entries.refs & ROW_MASK).min()))
        self._bypassing.append((second, entries))
        self._note_bypassing(entries.count, due_span_ms[0])
        return True

    def _may_bypass(self) -> bool:
        """Whether no slot has due entries: those that become due before the turn are due later than
        the bypassing ones, so the order of release stays.
        """
        head_ms = self._queue.head_ms
        return head_ms is None or head_ms > self.now_ms

    def _note_bypassing(self, count: int, due_ms: int) -> None:
        if self._bypassing_count == 0 or due_ms < self._bypassing_ms:
            self._bypassing_ms = due_ms
        self._bypassing_count += count

    def _slot_to_note(self, second: int) -> SecondSlot | None:
        """The slot that has to know of live entries of a second, None if no load will follow.

        It is one that is there, or a new one if the hour has stored entries and is not opened yet.
        """
        for slot in self._ring[second % HOUR_SECONDS]:
            if slot.second == second:
                return slot
        return self._slot(second) if self._unopened(second // HOUR_SECONDS) else None

    def _unopened(self, hour: int) -> bool:
        """Whether an hour has stored entries and is not opened yet."""
        return hour in self._hours or hour in self._opening or hour in self._far

    def _slot_bypassing(self) -> None:
        """Put bypassing entries into their slots, since others may have to be ordered with them."""
        if self._bypassing_count:
            bypassing, self._bypassing = self._bypassing, []
            few, self._bypassing_few = self._bypassing_few, []
            self._bypassing_count = 0
            for second, entries in bypassing:
                self._insert(second, entries)
            for entry in few:
                self._insert_one(entry[0] // SECOND_MS, entry)

    def _take_bypassing(self) -> _Part:
        """Take the bypassing entries out, in order."""
        bypassing, self._bypassing = self._bypassing, []
        few, self._bypassing_few = self._bypassing_few, []
        self._bypassing_count = 0
        self.turns += 1
        for second, entries in bypassing:
            self._count_released(second, entries.count)
        for entry in few:
            self._count_released(entry[0] // SECOND_MS, 1)
        if not bypassing:
            few.sort()
            return few
        parts = [entries for _, entries in bypassing]
        if few:
            parts.append(entries_of(few))
        return sort_entries(join_entries(parts))

    def _insert_one(self, second: int, entry: Entry) -> None:
        self._slot(second).insert_one(entry)
        # The slot's own head is in the queue already.
        self._queue.push((_RELEASE, second), entry[0])

    def _insert(self, second: int, entries: Entries) -> None:
        slot = self._slot(second)
        slot.insert(entries)
        head = slot.head_ms()
        assert head is not None
        self._queue.push((_RELEASE, second), head)

    def _mark_many(self, seconds: Int64Array, low: int, high: int) -> None:
        if low // HOUR_SECONDS == high // HOUR_SECONDS:
            hour = low // HOUR_SECONDS
            if hour not in self._opened and hour not in self._opening:
                self.note_hours((hour,), self.frontier())
                return
        hour_of = seconds // HOUR_SECONDS
        far = hour_of > self._last_near_hour()
        if far.any():
            self._note_far(hour_of[far])
            seconds, hour_of = seconds[~far], hour_of[~far]
        hours = set(_distinct(hour_of))
        lowered = hours & (self._opened | self._opening)
        self.note_hours(hours - lowered, self.frontier())
        for hour in lowered:
            self._mark(_distinct(seconds[hour_of == hour]))

    def _mark(self, seconds: Iterable[int]) -> None:
        for second in seconds:
            hour = second // HOUR_SECONDS
            if hour not in self._opened and hour not in self._opening:
                self.note_hours((hour,), self.frontier())
                continue
            slot = self._slot(second)
            if not slot.stored:
                slot.stored = True
                self._queue.push((_LOAD, second), second * SECOND_MS - PRELOAD_MS)

    # ------------------------------------------------------------------ turning

    def turn(self, now_ms: int, limit: int) -> WheelTurn:
        """Expire slots: hours to open, seconds to load, and about `limit` entries to release.

        Released entries have due <= now. Seconds are in order, and the entries of a second in
        (due, ref) order. Call again while `next_wake_ms() <= now`.
        """
        self.now_ms = now_ms = max(self.now_ms, now_ms)
        work = WheelTurn()
        taken: list[_Part] = []
        count = 0
        if self._bypassing_count > limit:
            self._slot_bypassing()
        elif self._bypassing_count:
            count = self._bypassing_count
            taken.append(self._take_bypassing())
        while count < limit and (key := self._queue.pop_due(now_ms)) is not None:
            self.turns += 1
            level, number = key
            if level == _FAR:
                self._slot_far_hours()
            elif level == _HOUR:
                self._hours.discard(number)
                self._opening.add(number)
                work.open_hours.append(number)
            elif level == _LOAD:
                slot = self._slot(number)
                slot.loading = True
                self._loading.add(number)
                work.load_seconds.append(number)
            else:
                slot = self._slot(number)
                few = slot.take_few(now_ms, limit - count)
                part = slot.take(now_ms, limit - count) if few is None else few
                size = part.count if isinstance(part, Entries) else len(part)
                count += size
                self._count_released(number, size)
                taken.append(part)
                self._requeue(slot)
        if count:
            work.release(taken, count)
        return work

    def _count_released(self, second: int, count: int) -> None:
        if second > self._released_second:
            self._released_second, self._released_count = second, 0
        if second == self._released_second:
            self._released_count += count

    def _requeue(self, slot: SecondSlot) -> None:
        head = slot.head_ms()
        if head is not None:
            self._queue.push((_RELEASE, slot.second), head)
        elif slot.idle:
            hour = slot.second // HOUR_SECONDS
            if not self._unopened(hour):
                self._ring[slot.second % HOUR_SECONDS].remove(slot)

    def hour_opened(self, hour: int, seconds: Iterable[int]) -> list[int]:
        """The host opened an hour: its seconds with stored entries move to the second level.

        If the hour is over, returns these seconds in order: the host must load them now, since no
        turn will ask for them.

        Slots of an hour that waits to be opened are kept even when they are empty: they record
        which entries of their second were released live or loaded, so none is released twice.
        """
        self._slot_bypassing()
        self._opening.discard(hour)
        self._opened.add(hour)
        base = hour * HOUR_SECONDS
        first = self._stored_from.pop(hour, 0)
        stored = [
            second
            for second in (base + at for at in seconds)
            if second >= first and not self._slot(second).loaded
        ]
        over = (hour + 1) * HOUR_MS <= self.now_ms
        if over:
            stored = [second for second in stored if not self._slot(second).stored]
            for second in stored:
                slot = self._slot(second)
                slot.stored = slot.loading = True
            self._loading.update(stored)
        else:
            self._mark(stored)
        for bucket in self._ring:
            if bucket:
                for slot in [s for s in bucket if s.second // HOUR_SECONDS == hour and s.idle]:
                    bucket.remove(slot)
        return stored if over else []

    def took_live(self, second: int) -> bool:
        """Whether a second got live entries, which a load of its chain must leave out."""
        self._slot_bypassing()
        return self._slot(second).took_live

    def second_loaded(self, second: int, entries: Entries) -> None:
        """Add the entries of a second that the host loaded, sorted by (due, ref)."""
        self._slot_bypassing()
        slot = self._slot(second)
        self._loading.discard(second)
        slot.load(entries)
        self._requeue(slot)

    def drop_hours_below(self, hour: int) -> None:
        """Forget that hours below `hour` were opened; they get no stored entries any more."""
        self._opened = {h for h in self._opened if h >= hour}

    # ------------------------------------------------------------------ the ring

    def _slot(self, second: int) -> SecondSlot:
        bucket = self._ring[second % HOUR_SECONDS]
        for slot in bucket:
            if slot.second == second:
                return slot
        slot = SecondSlot(second)
        bucket.append(slot)
        return slot
