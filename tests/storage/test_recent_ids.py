"""The table of recent ids against a dict, with keys that crowd the same slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from delaylog.storage import recent_ids
from delaylog.storage.recent_ids import MOVED_A_ROW, MOVED_MIN, SLOTS_MIN, RecentIds


@pytest.mark.parametrize("span", [3, 50, 5_000, 1 << 62])
@pytest.mark.parametrize("shift", [0, 40])
def test_it_agrees_with_a_dict(span: int, shift: int) -> None:
    """Batches of any size, keys that come again (also within a batch), hashes with equal ends."""
    random = np.random.default_rng(span % 97 + shift)
    table, model = RecentIds(), {}
    for size in (1, 5, 700, 3, 2_000, 0, 4_000):
        topics = random.integers(1, 4, size).astype(np.uint32)
        hashes = random.integers(1, span + 1, size).astype(np.uint64) << np.uint64(shift)
        refs = random.integers(1, 1 << 60, size)
        table.put(topics, hashes, refs)
        keys = zip(topics.tolist(), hashes.tolist(), strict=True)
        model.update(zip(keys, refs.tolist(), strict=True))
        assert table.count == len(model)
    for topic in range(5):
        asked = np.array([key[1] for key in model] + [0, 7], np.uint64)
        expected = [model.get((topic, int(value)), 0) for value in asked]
        assert table.get(topic, asked).tolist() == expected
    found = {(t, h): r for t, h, r in zip(*(c.tolist() for c in table.columns()), strict=True)}
    assert found == model


def test_it_stays_loose_and_small() -> None:
    """Never more than three quarters full, twenty bytes a slot."""
    table = RecentIds()
    for number in range(40):
        hashes = np.arange(number * 1_000 + 1, number * 1_000 + 1_001, dtype=np.uint64)
        table.put(np.full(1_000, 1, np.uint32), hashes, hashes.astype(np.int64))
        assert table.count * 4 <= table.slots * 3
    assert table.slots <= max(SLOTS_MIN, 4 * table.count)


def test_a_successor_need_not_grow_as_far_again() -> None:
    """It is empty, and has the slots of one that was used, fewer than one that was not."""
    table = RecentIds()
    count = 5_000
    hashes = np.arange(1, count + 1).astype(np.uint64)
    table.put(np.full(count, 1, np.uint32), hashes, hashes.astype(np.int64))
    slots = [table.slots]
    for _ in range(4):
        table = table.successor()
        assert (table.count, table.get(1, hashes).any()) == (0, False)
        slots.append(table.slots)
    assert slots == [8_192, 8_192, 2_048, 1_024, 1_024]


def test_no_put_pays_for_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that grows moves a bounded piece at every put; look-ups and counts go on."""
    stored: list[int] = []
    touched: list[int] = []
    put, touch = recent_ids._Table.put, recent_ids._Table.touch

    def counted(table: recent_ids._Table, *columns: Any) -> None:
        stored.append(len(columns[-1]))
        put(table, *columns)

    def measured(table: recent_ids._Table, first: int, stop: int) -> None:
        touched.append(stop - first)
        touch(table, first, stop)

    monkeypatch.setattr(recent_ids._Table, "put", counted)
    monkeypatch.setattr(recent_ids._Table, "touch", measured)
    random = np.random.default_rng(5)
    table, model, rows = RecentIds(), dict[int, int](), 100
    moving = grown = 0
    for _ in range(600):
        # Some come again, also while they are on their way, and twice in one put.
        fresh = random.integers(1, 60_000, rows).astype(np.uint64)
        refs = random.integers(1, 1 << 60, rows)
        stored.clear()
        slots = table.slots
        table.put(np.full(rows, 3, np.uint32), fresh, refs)
        assert sum(stored) <= rows + max(MOVED_A_ROW * rows, MOVED_MIN)
        model.update(zip(fresh.tolist(), refs.tolist(), strict=True))
        assert table.count == len(model)
        moving += table._old is not None
        grown += table.slots > slots
        if grown and table._old is not None and moving % 5 == 0:
            keys = np.array([*model, 60_001], np.uint64)
            assert table.get(3, keys).tolist() == [*model.values(), 0]
            assert not table.get(4, keys).any()
            columns = zip(*(column.tolist() for column in table.columns()[1:]), strict=True)
            assert dict(columns) == model
    assert grown > 4
    assert moving > 50
    assert max(touched) <= recent_ids.TOUCHED_A_ROW * rows


def test_a_put_larger_than_all_before() -> None:
    """It grows by more than one step, also while an earlier move is under way."""
    table = RecentIds()
    stop = 1
    for size in (700, 100, 10, 9_000, 50, 70_000, 1):
        hashes = np.arange(stop, stop + size, dtype=np.uint64)
        table.put(np.full(size, 1, np.uint32), hashes, hashes.astype(np.int64))
        stop += size
        assert table.count == stop - 1
        everything = np.arange(1, stop, dtype=np.uint64)
        assert (table.get(1, everything) == everything.astype(np.int64)).all()
