"""Entries of small frames as tuples against the same entries as columns: the same releases.

Three wheels get the same frames: as columns, as tuples of one frame, and each entry by itself. Each
has its own host, which opens hours and loads seconds after a random number of turns. Every turn has
to give the same entries in the same order, and every wake and tick has to be the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delaylog.wheel import Entry, TimingWheel, entries_of, sort_entries
from delaylog.wheel.second_slot import FEW_ENTRIES_MAX, HEAP_MAX, SecondSlot

HOUR_MS = 3_600_000
START_MS = 450_000 * HOUR_MS + 59 * 60_000 + 30_000
HOUR_SHIFT = 43
DELAYS = st.one_of(
    st.integers(-2_500, 2_500),
    st.sampled_from([0, 0, 0, 1, 9_999, 10_000, 10_001, 30_000]),
    st.integers(0, 60 * HOUR_MS),
)
EVENTS = st.one_of(
    st.tuples(st.just("add"), st.lists(DELAYS, min_size=1, max_size=2 * FEW_ENTRIES_MAX)),
    st.tuples(st.just("add"), st.lists(DELAYS, min_size=1, max_size=2)),
    st.tuples(st.just("wait"), st.integers(0, 1_200)),
    st.tuples(st.just("wait"), st.integers(0, HOUR_MS)),
    st.tuples(st.just("turn"), st.sampled_from([1, 5, 40, 16_384])),
    st.tuples(st.just("serve"), st.just(0)),
)


class Served:
    """One wheel with its host."""

    def __init__(self, add: Callable[[TimingWheel, int, list[Entry]], None]) -> None:
        self.wheel = TimingWheel(START_MS)
        self.add = add
        self.opens: list[int] = []
        self.loads: list[int] = []

    def turn(self, now_ms: int, limit: int) -> list[tuple[int, ...]]:
        """Turn until nothing is due: slices of several runs may be shorter than the limit."""
        out: list[tuple[int, ...]] = []
        while True:
            work = self.wheel.turn(now_ms, limit)
            self.opens += work.open_hours
            self.loads += work.load_seconds
            assert len(work.few) <= FEW_ENTRIES_MAX
            out += zip(*(column.tolist() for column in work.all()), strict=True)
            wake_ms = self.wheel.next_wake_ms()
            if wake_ms is None or wake_ms > now_ms:
                return out

    def serve(self, stored: list[Entry]) -> None:
        """Open and load what the wheel has asked for."""
        for hour in self.opens:
            seconds = {due // 1_000 for due, _, _ in stored if due // HOUR_MS == hour}
            in_hour = [second - hour * 3_600 for second in sorted(seconds)]
            self.loads += self.wheel.hour_opened(hour, in_hour)
        for second in self.loads:
            chain = [entry for entry in stored if entry[0] // 1_000 == second]
            self.wheel.second_loaded(second, sort_entries(entries_of(chain)))
        self.opens, self.loads = [], []


def as_columns(wheel: TimingWheel, now_ms: int, frame: list[Entry]) -> None:
    columns = entries_of(frame)
    wheel.add(now_ms, columns.due_ms // 1_000, columns)


def as_tuples(wheel: TimingWheel, now_ms: int, frame: list[Entry]) -> None:
    wheel.add_few(now_ms, frame)


def one_by_one(wheel: TimingWheel, now_ms: int, frame: list[Entry]) -> None:
    for entry in frame:
        wheel.add_few(now_ms, [entry])


@given(st.lists(EVENTS, max_size=40), st.booleans())
def test_tuples_give_the_same_releases_as_columns(
    events: list[tuple[str, int | list[int]]], noted: bool
) -> None:
    hosts = [Served(as_columns), Served(as_tuples), Served(one_by_one)]
    now_ms, rows, stored = START_MS, 0, list[Entry]()
    if noted:
        for host in hosts:
            host.wheel.note_hours([START_MS // HOUR_MS])

    def same(look: Callable[..., object], *given: int) -> None:
        first, *others = (look(host, *given) for host in hosts)
        assert all(other == first for other in others)

    for event, what in events:
        if isinstance(what, list):
            frame = []
            for delay in what:
                rows += 1
                due_ms = now_ms + delay
                frame.append((due_ms, (due_ms // HOUR_MS << HOUR_SHIFT) + rows, rows % 3))
            stored += frame
            for host in hosts:
                host.add(host.wheel, now_ms, frame)
        elif event == "wait":
            now_ms += what
        elif event == "turn":
            same(Served.turn, now_ms, what)
        else:
            same(lambda host: (sorted(host.opens), sorted(host.loads)))
            for host in hosts:
                host.serve(stored)
        same(lambda host: host.wheel.next_wake_ms())
        same(lambda host: host.wheel.tick())
    for _ in range(10_000):
        for host in hosts:
            host.serve(stored)
        wake_ms = hosts[0].wheel.next_wake_ms()
        same(lambda host: host.wheel.next_wake_ms())
        if wake_ms is None:
            break
        now_ms = max(now_ms, wake_ms)
        same(Served.turn, now_ms, 16_384)
        same(lambda host: host.wheel.tick())


def test_a_slot_with_many_tuples_makes_columns_of_them() -> None:
    """A heap of a second is bounded; what is in columns by then keeps its order among the rest."""
    slot = SecondSlot(0)
    keys = [(at % 977, at + 1, 0) for at in range(HEAP_MAX + 500)]
    for key in keys:
        slot.insert_one(key)
    assert len(slot._few) < 500
    taken: list[Entry] = []
    while (head := slot.head_ms()) is not None:
        few = slot.take_few(head, 16_384)
        part = entries_of(few) if few is not None else slot.take(head, 16_384)
        taken += zip(*(column.tolist() for column in part), strict=True)
    assert taken == sorted(keys)
    assert slot.idle


def test_a_turn_gives_many_tuples_as_columns() -> None:
    """What is not due stays as it is."""
    wheel = TimingWheel(START_MS)
    wheel.add_few(START_MS, [(START_MS + 5, row + 1, 0) for row in range(FEW_ENTRIES_MAX + 1)])
    wheel.add_few(START_MS, [(START_MS + 6, FEW_ENTRIES_MAX + 2, 0)])
    work = wheel.turn(START_MS + 5, 16_384)
    assert not work.few
    assert np.array_equal(work.released.refs, np.arange(1, FEW_ENTRIES_MAX + 2))
    assert wheel.turn(START_MS + 6, 16_384).few == [(START_MS + 6, FEW_ENTRIES_MAX + 2, 0)]
