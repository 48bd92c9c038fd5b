"""The table of recent ids against a dict, with keys that crowd the same slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from delaylog.storage.runs import recent_ids
from delaylog.storage.runs.recent_ids import (
    FEW_KEYS_MAX,
    MOVED_A_ROW,
    OWED_ROWS,
    SLOTS_MIN,
    RecentIds,
)


@pytest.mark.long
@pytest.mark.parametrize("span", [3, 50, 5_000, 1 << 62])
@pytest.mark.parametrize("shift", [0, 40])
@pytest.mark.parametrize("size", [FEW_KEYS_MAX, FEW_KEYS_MAX + 1, 4_000])
def test_it_agrees_with_a_dict(span: int, shift: int, size: int) -> None:
    """Batches of any size, keys that come again (also within a batch), keys with equal ends."""
    random = np.random.default_rng(span % 97 + shift)
    table, model = RecentIds(), dict[int, int]()
    for count in (1, 5, 700, 3, 2_000, 0, 4_000):
        keys = random.integers(1, span + 1, count).astype(np.uint64) << np.uint64(shift)
        refs = random.integers(1, 1 << 60, count)
        for first in range(0, count, size):
            table.put(keys[first : first + size], refs[first : first + size])
        model.update(zip(keys.tolist(), refs.tolist(), strict=True))
        assert table.count == len(model)
    asked = np.array([*model, (1 << 64) - 1, 7], np.uint64)
    expected = [model.get(int(key), 0) for key in asked]
    assert table.get(asked).tolist() == expected
    for first in range(0, len(asked), max(size, 500)):
        part = slice(first, first + size)
        assert table.get(asked[part]).tolist() == expected[part]
    assert dict(zip(*(column.tolist() for column in table.columns()), strict=True)) == model


def test_it_stays_loose_and_small() -> None:
    """Never more than five eighths full, sixteen bytes a slot."""
    table = RecentIds()
    for number in range(40):
        hashes = np.arange(number * 1_000 + 1, number * 1_000 + 1_001, dtype=np.uint64)
        table.put(hashes, hashes.astype(np.int64))
        assert table.count * 8 <= table.slots * 5
    assert table.slots <= max(SLOTS_MIN, 4 * table.count)


def test_a_successor_need_not_grow_as_far_again() -> None:
    """It is empty, and has the slots of one that was used, fewer than one that was not."""
    table = RecentIds()
    count = 20_000
    hashes = np.arange(1, count + 1).astype(np.uint64)
    table.put(hashes, hashes.astype(np.int64))
    slots = [table.slots]
    for _ in range(4):
        table = table.successor()
        assert (table.count, table.get(hashes).any()) == (0, False)
        slots.append(table.slots)
    assert slots == [32_768, 32_768, 8_192, SLOTS_MIN, SLOTS_MIN]


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
        table.put(fresh, refs)
        assert sum(stored) <= rows + MOVED_A_ROW * (rows + OWED_ROWS)
        model.update(zip(fresh.tolist(), refs.tolist(), strict=True))
        assert table.count == len(model)
        moving += table._old is not None
        grown += table.slots > slots
        if grown and table._old is not None and moving % 5 == 0:
            keys = np.array([*model, 60_001], np.uint64)
            assert table.get(keys).tolist() == [*model.values(), 0]
            columns = zip(*(column.tolist() for column in table.columns()), strict=True)
            assert dict(columns) == model
    assert grown > 3
    assert moving > 50
    assert max(touched) <= recent_ids.TOUCHED_A_ROW * (rows + OWED_ROWS)


def test_a_put_larger_than_all_before() -> None:
    """It grows by more than one step, also while an earlier move is under way."""
    table = RecentIds()
    stop = 1
    for size in (700, 100, 10, 9_000, 50, 70_000, 1):
        hashes = np.arange(stop, stop + size, dtype=np.uint64)
        table.put(hashes, hashes.astype(np.int64))
        stop += size
        assert table.count == stop - 1
        everything = np.arange(1, stop, dtype=np.uint64)
        assert (table.get(everything) == everything.astype(np.int64)).all()
