"""The table of recent ids against a dict, with keys that crowd the same slots."""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.storage.recent_ids import SLOTS_MIN, RecentIds


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
        assert table.count * 4 <= len(table._refs) * 3
    assert len(table._refs) <= max(SLOTS_MIN, 4 * table.count)


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
