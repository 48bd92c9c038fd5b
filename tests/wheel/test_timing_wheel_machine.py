"""The timing wheel against a plain set of entries, under any order of events.

The test plays the host and the storage: every entry it adds is in a list of its second, hours are
opened and seconds loaded after random delays, and a load gives the whole chain of that moment,
entries that the wheel took live included. Time steps forward by milliseconds to hours, sometimes
backward. Nothing may be early, lost or released twice, and nothing late while the host keeps up.
"""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from delaylog.wheel import FEW_ENTRIES_MAX, Entries, TimingWheel, sort_entries
from delaylog.wheel.second_slot import list_of
from tests.effort import tries

HOUR_MS = 3_600_000
START_MS = 450_000 * HOUR_MS + 59 * 60_000 + 30_000
TAG_SHIFT, HOUR_SHIFT = 32, 43
DELAYS = st.one_of(
    st.integers(-3_000, 15_000),
    st.sampled_from([0, 1, 2, 999, 9_999, 10_000, 10_001, 30_000, 60_000]),
    st.integers(0, 3 * HOUR_MS),
)
STEPS = st.one_of(
    st.integers(0, 1_500),
    st.sampled_from([1, 999, 1_000, 9_999, 10_000, 60_000]),
    st.integers(0, 2 * HOUR_MS),
    st.integers(-5_000, -1),
)


class WheelMachine(RuleBasedStateMachine):
    """Entries are (due, ref); a ref is hour, epoch tag and row number, as the storage makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.tag = 2_047
        self.clock_ms = START_MS
        self.stored: dict[int, list[tuple[int, int]]] = {}
        self.rows: dict[int, int] = {}
        self.waiting: dict[int, int] = {}
        self.cancelled: set[int] = set()
        self.released: set[int] = set()
        self.opens: list[int] = []
        self.loads: list[int] = []
        self.begin()

    def begin(self) -> None:
        self.opens, self.loads = [], []
        self.wheel = TimingWheel(self.clock_ms)
        self.now_ms = self.clock_ms
        self.tick = (0, 0)
        self.late: set[int] = set()
        self.wheel.note_hours({ref >> HOUR_SHIFT for ref in self.waiting})

    # ------------------------------------------------------------------ events

    @rule(
        frame=st.lists(DELAYS, min_size=1, max_size=20),
        together=st.booleans(),
        told=st.booleans(),
        few=st.booleans(),
    )
    def add(self, frame: list[int], together: bool, told: bool, few: bool) -> None:
        """A committed frame: any seconds, or all in one; its span is given or found; as columns or
        as tuples.
        """
        if together:
            frame = [frame[0] // 1_000 * 1_000 + delay % 7 for delay in frame]
        due = np.array([self.clock_ms + delay for delay in frame], np.int64)
        refs = []
        for at in due.tolist():
            hour = at // HOUR_MS
            number = self.rows[hour] = self.rows.get(hour, 0) + 1
            ref = (hour << HOUR_SHIFT) | (self.tag << TAG_SHIFT) | number
            refs.append(ref)
            self.stored.setdefault(at // 1_000, []).append((at, ref))
            self.waiting[ref] = at
            if at // 1_000 < self.tick[0]:
                self.late.add(ref)
        entries = Entries(due, np.array(refs, np.int64), np.zeros(len(due), np.int64))
        span = (int(due.min()), int(due.max())) if told else None
        if few:
            self.wheel.add_few(self.clock_ms, list_of(entries))
        else:
            self.wheel.add(self.clock_ms, due // 1_000, entries, due_span_ms=span)
        self.now_ms = max(self.now_ms, self.clock_ms)

    @rule(step=STEPS)
    def pass_time(self, step: int) -> None:
        self.clock_ms += step

    @rule(limit=st.sampled_from([1, 2, 5, 1_000]), times=st.integers(1, 4))
    def turn(self, limit: int, times: int) -> None:
        for _ in range(times):
            self.turn_once(limit)

    def turn_once(self, limit: int) -> list[tuple[int, int]]:
        """Turn the wheel; return the (due, ref) of what it released."""
        wake, turns = self.wheel.next_wake_ms(), self.wheel.turns
        work = self.wheel.turn(self.clock_ms, limit)
        self.now_ms = max(self.now_ms, self.clock_ms)
        if wake is None or wake > self.now_ms:
            assert self.wheel.turns == turns, "nothing turns while nothing is due"
            assert not work.open_hours
            assert not work.load_seconds
            assert work.all().count == 0
        self.opens += work.open_hours
        self.loads += work.load_seconds
        assert not (work.few and work.released.count)
        assert len(work.few) <= FEW_ENTRIES_MAX < work.released.count or not work.released.count
        due, refs, _ = (column.tolist() for column in work.all())
        assert len(refs) <= limit + 8
        keys = [(at, ref) for at, ref in zip(due, refs, strict=True)]
        for second in {at // 1_000 for at in due}:
            part = [key for key in keys if key[0] // 1_000 == second]
            assert len({ref >> TAG_SHIFT & 2_047 for _, ref in part}) > 1 or part == sorted(part)
        for at, ref in keys:
            assert at <= self.now_ms, "never early"
            assert ref not in self.released, "never twice"
            if ref in self.cancelled:
                self.cancelled.discard(ref)
            else:
                assert self.waiting.pop(ref) == at
            self.released.add(ref)
        return keys

    @precondition(lambda self: self.opens)
    @rule(data=st.data())
    def open_hour(self, data: st.DataObject) -> None:
        hour = data.draw(st.sampled_from(self.opens))
        self.opens.remove(hour)
        self.open(hour)

    def open(self, hour: int) -> None:
        seconds = [second - hour * 3_600 for second in self.stored if second // 3_600 == hour]
        past = self.wheel.hour_opened(hour, sorted(seconds))
        assert past == [] or (hour + 1) * HOUR_MS <= self.now_ms
        assert past == sorted(past)
        self.loads += past

    @precondition(lambda self: self.loads)
    @rule(data=st.data())
    def load_second(self, data: st.DataObject) -> None:
        second = data.draw(st.sampled_from(self.loads))
        self.loads.remove(second)
        self.load(second)

    def load(self, second: int) -> None:
        """The whole chain: what was live, released or cancelled before is storage's to drop."""
        chain = [(at, ref) for at, ref in self.stored.get(second, ()) if self.gives(ref)]
        columns = np.array(chain, np.int64).reshape(-1, 2).T
        entries = Entries(columns[0], columns[1], np.zeros(len(chain), np.int64))
        self.wheel.second_loaded(second, sort_entries(entries))

    def gives(self, ref: int) -> bool:
        """Ready messages that were not received are still living rows: they come again."""
        return ref in self.waiting or ref in self.released

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """The wheel does not know; the entry may still be released, and is dropped then."""
        ref = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[ref]
        self.cancelled.add(ref)

    @rule()
    def restart(self) -> None:
        """A new wheel over the same storage; the epoch tag wraps around once."""
        self.tag = (self.tag + 1) % 2_048
        # What was released stays handed out, so that each entry is still expected once.
        gone = self.released | self.cancelled
        for second, chain in self.stored.items():
            self.stored[second] = [(at, ref) for at, ref in chain if ref not in gone]
        self.clock_ms = max(self.clock_ms, self.now_ms)
        self.begin()

    @precondition(lambda self: self.waiting)
    @rule()
    def drain(self) -> None:
        """Given time and a willing host, everything comes, at its own millisecond."""
        began_ms = self.clock_ms = max(self.clock_ms, self.now_ms)
        for _ in range(20_000):
            opens, self.opens = self.opens, []
            for hour in opens:
                self.open(hour)
            loads, self.loads = self.loads, []
            for second in loads:
                self.load(second)
            wake = self.wheel.next_wake_ms()
            if wake is None:
                break
            self.clock_ms = max(self.clock_ms, wake)
            for due_ms, _ in self.turn_once(1_000):
                assert due_ms == self.clock_ms or due_ms <= began_ms, "never late"
        assert not self.waiting, "nothing is lost"

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def tick_is_truthful(self) -> None:
        """The tick never goes back, and all that was there in earlier seconds is released."""
        tick = self.wheel.tick()
        assert tick >= self.tick
        self.tick = tick
        for ref, at in self.waiting.items():
            assert at // 1_000 >= tick[0] or ref in self.late


TestWheel = WheelMachine.TestCase
TestWheel.settings = settings(
    max_examples=tries(100),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
