"""Columns against a dict, with snapshots that share blocks while rows change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.schedules import columns as module
from delaylog.broker.engine.schedules.columns import (
    AHEAD,
    NONE,
    PAUSED,
    WIDTH,
    Column,
    Columns,
    buffered_in,
    wakes_of,
)
from delaylog.broker.engine.schedules.schedule import Progress
from delaylog.storage.layout import NEVER_MS

STEPS = st.lists(st.tuples(st.sampled_from("aadmsrw"), st.integers(0, 30)), max_size=60)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four rows, so that few rows fill several."""
    monkeypatch.setattr(module, "BLOCK_BITS", 2)
    monkeypatch.setattr(module, "BLOCK_ROWS", 4)
    monkeypatch.setattr(module, "_INSIDE", 3)


def values(number: int) -> list[int]:
    """A whole row."""
    return [number, *range(number, number + WIDTH - 1)]


def lines(columns: Columns, slots: int) -> list[list[int]]:
    """The rows that a checkpoint would write."""
    blocks = [columns.shared(at, slots) for at in range(-(-slots // 4))]
    return [line for block in blocks for line in block.T.tolist()]


@given(STEPS)
def test_rows_are_a_dict(steps: list[tuple[str, int]]) -> None:
    """Add, drop, move; a snapshot shows the rows of its moment until it is released."""
    columns, model, number = Columns(), dict[int, list[int]](), 0
    taken: list[list[int]] | None = None
    for what, which in steps:
        slots = list(model)
        if what == "a":
            number += 1
            slot = columns.next_slot
            assert slot not in model
            columns.add(slot, values(number))
            model[slot] = values(number)
        elif what == "d" and slots:
            gone = sorted({slots[which % len(slots)], slots[which * 7 % len(slots)]})
            columns.remove(np.array(gone))
            for slot in gone:
                del model[slot]
        elif what == "m" and slots:
            slot = slots[which % len(slots)]
            columns.set(slot, Column.PROGRESS, [which] * 8)
            model[slot] = model[slot][: Column.PROGRESS] + [which] * 8
        elif what == "s":
            columns.release_all()
            taken = [columns.row(slot) for slot in range(columns.top)]
            assert columns.share() == len(taken)
        elif what == "r":
            # What is released may change.
            columns.release_all()
            taken = None
        assert columns.count == len(model)
        assert {slot: columns.row(slot) for slot in model} == model
        if taken is not None:
            assert lines(columns, len(taken)) == taken
    everything = columns.where(lambda block: block[Column.NUMBER] > 0)
    assert everything.tolist() == sorted(model)
    back = everything[::-1]
    wanted = [model[slot][0] for slot in back.tolist()]
    assert columns.column(Column.NUMBER, back).tolist() == wanted
    other = Columns()
    for at in range(-(-columns.share() // 4)):
        other.load(columns.shared(at, columns.top))
        columns.release(at)
    other.free = columns.free
    assert (other.top, other.count, other.next_slot) == (
        *(columns.top, columns.count, columns.next_slot),
    )


def test_slots_are_used_again_last_freed_first() -> None:
    """As the log says, so every node has the same ones."""
    columns = Columns()
    for slot in range(6):
        assert columns.next_slot == slot
        columns.add(slot, values(slot + 1))
    columns.remove(np.array([1, 4]))
    assert [columns.number_at(slot) for slot in (-1, 1, 3, 4, 99)] == [0, 0, 4, 0, 0]
    for slot in (4, 1, 6):
        assert columns.next_slot == slot
        columns.add(slot, values(9))
    assert columns.free == NONE
    columns.remove(np.zeros(0, np.int64))
    with pytest.raises(AssertionError, match="order"):
        columns.add(3, values(1))


@pytest.mark.parametrize(
    ("flags", "progress", "wake_ms"),
    [
        (0, Progress(5_000, 7_000), 7_000),
        (AHEAD, Progress(5_000, 7_000), 6_000),
        (AHEAD, Progress(500, 500), 0),
        (PAUSED, Progress(5_000, 7_000), NEVER_MS),
        (PAUSED | AHEAD, Progress(5_000, 7_000), NEVER_MS),
        (0, Progress(0, 0, n=5), NEVER_MS),
    ],
)
def test_when_a_row_wakes(flags: int, progress: Progress, wake_ms: int) -> None:
    """At its due time or ahead of it; not while it is paused, nor after its end."""
    columns = Columns()
    columns.add(0, [1, 1, 1, 1, 1, flags, *progress.values()])
    ((_, block),) = columns.used()
    assert wakes_of(block).tolist() == [wake_ms]
    assert buffered_in(block).tolist() == [False]
    columns.set(0, Column.PROGRESS, Progress(1, 1, buffered_ms=4).values())
    assert buffered_in(block).tolist() == [True]
