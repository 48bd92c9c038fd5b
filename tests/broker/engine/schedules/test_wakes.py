"""The order of due times against a sorted list, over many minutes, with few entries at a time."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from delaylog.broker.engine.schedules import wakes as module
from delaylog.broker.engine.schedules.columns import Column, Columns
from delaylog.broker.engine.schedules.schedule import Progress
from delaylog.broker.engine.schedules.wakes import AT_ONCE_MS, WINDOW_MS, Wakes
from tests.effort import tries


def columns_of(dues: list[int]) -> Columns:
    """Rows that are decided at their due times."""
    columns = Columns()
    for slot, due_ms in enumerate(dues):
        columns.add(slot, [slot + 1, 1, 1, 1, 1, 0, *Progress(due_ms, due_ms).values()])
    return columns


def popped(wakes: Wakes, now_ms: int) -> list[tuple[int, int]]:
    """(time, slot) of what is due."""
    out = []
    while True:
        wakes.look_ahead(now_ms)
        entry = wakes.pop(now_ms)
        if entry is None:
            return out
        out.append((entry[1], entry[0]))


@pytest.mark.parametrize("seed", range(tries(30)))
@pytest.mark.parametrize("scan_entries", [3, 65_536])
def test_all_come_in_order(seed: int, scan_entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows move on when they have come, within the minute or far ahead; the clock jumps."""
    monkeypatch.setattr(module, "SCAN_ENTRIES", scan_entries)
    monkeypatch.setattr(module, "REFILL", 2)
    random = Random(seed)
    dues = [1_000 + random.randrange(0, 5 * WINDOW_MS, 10_000) for _ in range(40)]
    columns = columns_of(dues)
    wakes = Wakes(columns)
    wakes.lead()
    now_ms = 1_000
    for _ in range(60):
        now_ms += random.choice((0, 500, 20_000, 3 * WINDOW_MS))
        first = min(dues)
        next_ms = wakes.next_ms()
        assert next_ms is not None
        assert next_ms <= first
        wanted = sorted((due, slot) for slot, due in enumerate(dues) if due <= now_ms)
        assert popped(wakes, now_ms) == wanted
        for _, slot in wanted:
            # Always ahead of the present, as the next instant of a firing in time.
            dues[slot] = now_ms + random.choice((1, 700, 10_000, 2 * WINDOW_MS, 9 * WINDOW_MS))
            columns.set(slot, Column.PROGRESS, Progress(dues[slot], dues[slot]).values())
            wakes.enter(slot, dues[slot])
    times, slots = wakes.all_in_order()
    assert list(zip(times.tolist(), slots.tolist(), strict=True)) == sorted(
        (due, slot) for slot, due in enumerate(dues)
    )


def test_the_next_time_is_exact_once_it_was_looked_for() -> None:
    """So that a host does not wake again and again."""
    wakes = Wakes(columns_of([10 * WINDOW_MS, 0]))
    assert wakes.next_ms() is None
    wakes.lead()
    assert popped(wakes, 5_000) == []
    assert wakes.next_ms() == 10 * WINDOW_MS
    wakes.enter(1, 9 * WINDOW_MS)
    assert wakes.next_ms() == 9 * WINDOW_MS
    wakes.follow()
    assert wakes.next_ms() is None
    wakes.enter(1, 9 * WINDOW_MS)
    assert wakes.next_ms() is None


def test_buffered_firings_come_first() -> None:
    """All of them, when a leadership begins; later those that were entered so."""
    columns = columns_of([7_000] * 600)
    for slot in range(0, 600, 2):
        columns.set(slot, Column.PROGRESS, Progress(8_000, 8_000, buffered_ms=5).values())
    wakes = Wakes(columns)
    wakes.lead()
    assert popped(wakes, 5_000) == [(AT_ONCE_MS, slot) for slot in range(0, 600, 2)]
    wakes.enter(3, AT_ONCE_MS)
    assert wakes.next_ms() == AT_ONCE_MS
    assert popped(wakes, 5_000) == [(AT_ONCE_MS, 3)]
    assert len(popped(wakes, 9_000)) == 600


def test_what_is_late_for_ever_does_not_hide_the_next_minute() -> None:
    """A row that is entered again in the past, and one that waits two minutes ahead."""
    wakes = Wakes(columns_of([2_000, 2 * WINDOW_MS]))
    wakes.lead()
    wakes.look_ahead(2_000)
    assert wakes.pop(2_000) == (0, 2_000)
    wakes.enter(0, 2_001)
    now_ms = 3 * WINDOW_MS
    wakes.look_ahead(now_ms)
    assert [wakes.pop(now_ms), wakes.pop(now_ms)] == [(0, 2_001), (1, 2 * WINDOW_MS)]


def test_nothing_is_scanned_within_a_slice() -> None:
    """An entry whose frame is not applied yet is known only from `enter`."""
    columns = columns_of([2_000])
    wakes = Wakes(columns)
    wakes.lead()
    wakes.look_ahead(2_000)
    assert wakes.pop(2_000) == (0, 2_000)
    now_ms = 2_000 + 5 * WINDOW_MS
    wakes.enter(0, 2_000 + 2 * WINDOW_MS)
    assert wakes.pop(now_ms) is None
    columns.set(0, Column.PROGRESS, Progress(*[2_000 + 2 * WINDOW_MS] * 2).values())
    wakes.look_ahead(now_ms)
    assert wakes.pop(now_ms) == (0, 2_000 + 2 * WINDOW_MS)
    assert np.array_equal(wakes.all_in_order()[1], [0])
