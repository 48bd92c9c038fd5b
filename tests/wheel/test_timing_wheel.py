"""The wheel in known situations: what wakes it, what does not, and how much it gives at once."""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.wheel import NO_ENTRIES, Entries, TimingWheel

HOUR_MS = 3_600_000
START_MS = 450_000 * HOUR_MS
HOUR_SHIFT = 43
WAYS = ["columns", "with their span", "few"]


def entries(due: list[int] | np.ndarray, first: int = 1) -> tuple[np.ndarray, Entries]:
    """(seconds, entries) with row numbers from `first`."""
    due = np.asarray(due, np.int64)
    refs = (due // HOUR_MS << HOUR_SHIFT) + np.arange(first, first + len(due))
    return due // 1_000, Entries(due, refs, np.zeros(len(due), np.int64))


def add(wheel: TimingWheel, now: int, due: int, way: str, first: int = 1) -> Entries:
    """Add one entry in one of the ways that a frame's entries come; returns it."""
    seconds, entry = entries([due], first)
    if way == "few":
        wheel.add_few(now, [(due, int(entry.refs[0]), 0)])
    else:
        wheel.add(now, seconds, entry, due_span_ms=(due, due) if way == "with their span" else None)
    return entry


def run_to_end(wheel: TimingWheel, stored: Entries) -> list[tuple[int, int]]:
    """Serve the wheel at each of its wakes; (time, due) of what is released."""
    out = []
    while (wake := wheel.next_wake_ms()) is not None:
        work = wheel.turn(wake, 1_000)
        for hour in work.open_hours:
            due = stored.due_ms[stored.due_ms // HOUR_MS == hour]
            wheel.hour_opened(hour, np.unique(due // 1_000 % 3_600).tolist())
        for second in work.load_seconds:
            mask = stored.due_ms // 1_000 == second
            wheel.second_loaded(second, Entries(*(column[mask] for column in stored)))
        out += [(wake, at) for at in work.all().due_ms.tolist()]
    return out


def test_a_far_message_causes_no_empty_turns() -> None:
    """A message in 2 h 5 min: its hour opens, its second loads, it is released. Three turns."""
    wheel = TimingWheel(START_MS)
    due = START_MS + 125 * 60_000 + 7
    seconds, far = entries([due])
    wheel.add(START_MS, seconds, far)
    for now in range(START_MS, START_MS + 2 * HOUR_MS - 60_000, 1_000):
        assert wheel.turn(now, 1_000).all().count == 0
    assert wheel.turns == 0
    assert run_to_end(wheel, far) == [(due, due)]
    assert wheel.turns == 3


def test_a_new_head_wakes_early_and_nothing_else_does() -> None:
    """A sleeper's alarm follows what is due first."""
    wheel = TimingWheel(START_MS)
    wakes = []
    for number, delay in enumerate((2 * HOUR_MS, 5_000, 6_000, 5_000, 4_999)):
        wheel.add(START_MS, *entries([START_MS + delay], first=1 + number))
        wakes.append(wheel.next_wake_ms())
    hour = START_MS + 2 * HOUR_MS - 60_000
    assert wakes == [hour, *[START_MS + at for at in (5_000, 5_000, 5_000, 4_999)]]


def test_each_entry_has_its_own_millisecond() -> None:
    """Inside a loaded second, at due - 1 nothing and at due exactly that."""
    wheel = TimingWheel(START_MS)
    due = [START_MS + 2_000 + ms for ms in (1, 1, 500, 999)]
    wheel.add(START_MS, *entries(due))
    for at in (1, 500, 999):
        assert wheel.turn(START_MS + 2_000 + at - 1, 9).all().count == 0
        expected = [d for d in due if d == START_MS + 2_000 + at]
        assert wheel.turn(START_MS + 2_000 + at, 9).all().due_ms.tolist() == expected
    assert wheel.next_wake_ms() is None


@pytest.mark.parametrize("way", WAYS)
def test_an_entry_due_in_a_millisecond_waits_for_it(way: str) -> None:
    """Entries that are due as they come skip the slots; one that is due next does not."""
    wheel = TimingWheel(START_MS)
    add(wheel, START_MS, START_MS + 1, way)
    assert wheel.turn(START_MS, 9).all().count == 0
    assert wheel.turn(START_MS + 1, 9).all().due_ms.tolist() == [START_MS + 1]


@pytest.mark.parametrize("way", WAYS)
def test_an_entry_due_as_it_comes_does_not_overtake_an_earlier_one(way: str) -> None:
    """The turn for the earlier one is late, and the later one is due by then."""
    wheel = TimingWheel(START_MS)
    add(wheel, START_MS, START_MS + 3, way)
    add(wheel, START_MS + 5, START_MS + 5, way, first=2)
    released = wheel.turn(START_MS + 5, 9).all()
    assert released.due_ms.tolist() == [START_MS + 3, START_MS + 5]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("delay_ms", [11_000, 59 * 60_000, 3 * HOUR_MS, 10 * 366 * 24 * HOUR_MS])
def test_a_stored_entry_comes_nearer_with_time(delay_ms: int, way: str) -> None:
    """Its second, its hour, or many hours ahead: it is released once, at its millisecond."""
    wheel = TimingWheel(START_MS)
    stored = add(wheel, START_MS, START_MS + delay_ms, way)
    assert run_to_end(wheel, stored) == [(START_MS + delay_ms, START_MS + delay_ms)]


@pytest.mark.parametrize("way", WAYS)
def test_an_entry_of_a_second_just_loaded_is_released_once(way: str) -> None:
    """The load was asked for 10 s before, the first moment at which the second takes live ones."""
    wheel = TimingWheel(START_MS)
    second = START_MS // 1_000 + 30
    first = add(wheel, START_MS, second * 1_000 + 5, way)
    now = second * 1_000 - 10_000
    for hour in wheel.turn(START_MS, 9).open_hours:
        wheel.hour_opened(hour, [30])
    assert wheel.turn(now, 9).load_seconds == [second]
    wheel.second_loaded(second, first)
    later = add(wheel, now, second * 1_000 + 6, way, first=2)
    stored = Entries(*(np.concatenate(pair) for pair in zip(first, later, strict=True)))
    assert [due for _, due in run_to_end(wheel, stored)] == stored.due_ms.tolist()


def test_the_present_hour_opened_late_releases_nothing_twice() -> None:
    """Short delays went live; the first far one opens the hour, whose chains hold them too."""
    wheel = TimingWheel(START_MS)
    seconds, near = entries([START_MS + 1_000, START_MS + 2_000])
    wheel.add(START_MS, seconds, near)
    now = START_MS + 5_000
    assert wheel.turn(now, 9).all().count == 2
    seconds, far = entries([START_MS + 60_000], first=3)
    wheel.add(now, seconds, far)
    stored = Entries(*(np.concatenate(pair) for pair in zip(near, far, strict=True)))
    assert run_to_end(wheel, stored) == [(START_MS + 60_000, START_MS + 60_000)]
    assert wheel.tick() == (START_MS // 1_000 + 60, 1)


def test_the_tick_waits_for_what_has_not_been_released() -> None:
    """Hours to open, seconds to load and slices to come hold the tick back; it never goes back."""
    past = START_MS - 3 * HOUR_MS + 5_000
    wheel = TimingWheel(START_MS)
    wheel.note_hours([past // HOUR_MS])
    wheel.turn(START_MS, 9)
    assert wheel.tick()[0] == past // HOUR_MS * 3_600
    wheel.hour_opened(past // HOUR_MS, [5])
    wheel.turn(START_MS, 9)
    assert wheel.tick() == (past // 1_000, 0)
    wheel.second_loaded(past // 1_000, entries([past, past, past])[1])
    wheel.turn(START_MS, 2)
    assert wheel.tick() == (past // 1_000, 2)
    wheel.turn(START_MS, 2)
    assert wheel.tick() == (START_MS // 1_000, 0)
    wheel.turn(START_MS - 10_000, 2)
    assert wheel.tick() == (START_MS // 1_000, 0), "a backward step holds"


def test_a_million_entries_of_one_second_leave_in_slices() -> None:
    """Loaded and live ones together: each turn gives about the limit, all in order."""
    n, limit = 1_000_000, 16_384
    second = START_MS // 1_000 + 30
    wheel = TimingWheel(START_MS)
    wheel.note_hours([second // 3_600])
    wheel.turn(START_MS, 1)
    wheel.hour_opened(second // 3_600, [30])
    due = second * 1_000 + np.sort(np.arange(n - 2_000) % 1_000)
    assert wheel.turn(second * 1_000 - 10_000, 1).load_seconds == [second]
    live = second * 1_000 + np.arange(2_000) % 1_000
    wheel.add(second * 1_000 - 9_000, *entries(live, first=n))
    wheel.second_loaded(second, entries(due)[1])
    now = second * 1_000 + 999
    parts = []
    while (wake := wheel.next_wake_ms()) is not None and wake <= now:
        released = wheel.turn(now, limit).all()
        assert 0 < released.count <= limit + 8
        parts.append(released)
    keys = [np.concatenate([p[at] for p in parts]) for at in (0, 1)]
    assert len(keys[0]) == n
    order = np.lexsort((keys[1], keys[0]))
    assert (order == np.arange(n)).all()
    assert wheel.tick() == (second, n)


def test_an_hour_without_entries_leaves_nothing_behind() -> None:
    """The host may find an hour empty, and drop what it has opened."""
    wheel = TimingWheel(START_MS)
    wheel.note_hours([START_MS // HOUR_MS])
    assert wheel.turn(START_MS, 1).open_hours == [START_MS // HOUR_MS]
    wheel.hour_opened(START_MS // HOUR_MS, ())
    wheel.drop_hours_below(START_MS // HOUR_MS + 1)
    assert wheel.next_wake_ms() is None
    wheel.add(START_MS, np.zeros(0, np.int64), NO_ENTRIES)
    assert wheel.next_wake_ms() is None


def test_what_is_due_as_it_comes_is_released_by_the_next_turn() -> None:
    """One frame after the other, each in a slot's order and counted, and nothing is left behind."""
    second = START_MS // 1_000 + 7
    wheel = TimingWheel(second * 1_000)
    for number in range(3):
        now = second * 1_000 + 100 * number + 100
        wheel.add(now, *entries([now, now - 50, now], first=1 + 3 * number))
        assert wheel.next_wake_ms() == now - 50
        assert wheel.tick() == (second, 3 * number)
        released = wheel.turn(now, 9).all()
        assert released.due_ms.tolist() == [now - 50, now, now]
        assert (released.refs & 0xFF).tolist() == [3 * number + at for at in (2, 1, 3)]
        assert wheel.next_wake_ms() is None
        assert wheel.turn(now, 9).all().count == 0
    assert wheel.turns == 3
    assert wheel.tick() == (second, 9)
    wheel.add(now + 5_000, *entries([now + 4_000], first=10))
    assert wheel.tick()[0] == second + 4, "not past what is still to come out"


def test_of_what_is_due_as_it_comes_more_than_a_slice_is_released_in_slices() -> None:
    wheel = TimingWheel(START_MS)
    wheel.add(START_MS, *entries([START_MS] * 10))
    counts = []
    while wheel.next_wake_ms() is not None:
        counts.append(wheel.turn(START_MS, 4).all().count)
    assert counts == [4, 4, 2]
    assert wheel.tick() == (START_MS // 1_000, 10)


def test_frames_that_are_due_as_they_come_are_released_in_the_order_of_their_times() -> None:
    """What came first may be due last, whether what is due before it came live or was loaded."""
    now = START_MS + 900
    wheel = TimingWheel(now)
    wheel.add(now, *entries([START_MS + 500]))
    wheel.add(now, *entries([START_MS + 700], first=2))
    wheel.add(now, *entries([START_MS + 300], first=3))
    due = wheel.turn(now, 9).all().due_ms.tolist()
    assert due == [START_MS + 300, START_MS + 500, START_MS + 700]

    now = START_MS + 20_000
    stored = entries([START_MS + 15_000], first=4)
    wheel.add(START_MS + 1_000, *stored)
    opened = wheel.turn(START_MS + 1_000, 9)
    wheel.hour_opened(opened.open_hours[0], [15])
    assert wheel.turn(now, 9).load_seconds == [START_MS // 1_000 + 15]
    wheel.add(now, *entries([now], first=5))
    wheel.second_loaded(START_MS // 1_000 + 15, stored[1])
    assert wheel.turn(now, 9).all().due_ms.tolist() == [START_MS + 15_000, now]


def test_what_is_due_as_it_comes_into_an_hour_not_opened_yet_is_not_loaded_again() -> None:
    """A start: the hour may have anything, and its chains hold what came since."""
    wheel = TimingWheel(START_MS)
    wheel.note_hours([START_MS // HOUR_MS])
    seconds, due = entries([START_MS])
    wheel.add(START_MS, seconds, due)
    work = wheel.turn(START_MS, 9)
    assert work.all().count == 1
    wheel.hour_opened(work.open_hours[0], [0])
    for second in wheel.turn(START_MS, 9).load_seconds:
        wheel.second_loaded(second, due)
    assert wheel.turn(START_MS, 9).all().count == 0


def test_an_hour_noted_while_entries_pass_wakes_at_its_own_time() -> None:
    """It has been open to be loaded for longer than what passes has been due."""
    wheel = TimingWheel(START_MS)
    wheel.add(START_MS, *entries([START_MS]))
    wheel.note_hours([START_MS // HOUR_MS - 1])
    assert wheel.next_wake_ms() == START_MS - HOUR_MS - 60_000
    work = wheel.turn(START_MS, 9)
    assert work.open_hours == [START_MS // HOUR_MS - 1]
    assert work.all().count == 1
