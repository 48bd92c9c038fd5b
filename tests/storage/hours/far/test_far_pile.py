"""The pile of far rows is cut into parts by key, so that a large one is sorted bit by bit.

Purpose: parts hold every row once, in order, each with its own record, and none is much too large.
Method: random frames with records that name their row, cut at several sizes.
"""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.storage.hours.tails import FarPile, key_cuts, sorted_part
from delaylog.storage.layout import INDEX_BITS, INDEX_ENTRY, INDEX_MASK

FRAMES = 40
ROWS = 300
RECORD = 16


def filled() -> FarPile:
    """Frames over a thousand hours; a record is the key of its row, twice."""
    random = np.random.default_rng(1)
    pile = FarPile()
    for frame in range(FRAMES):
        hours = np.sort(random.integers(1_000, 2_000, ROWS))
        rows = np.zeros(ROWS, INDEX_ENTRY)
        rows["global_index"] = frame * ROWS + np.arange(ROWS)
        rows["size"] = RECORD
        # Records stand in the order of arrival, not in that of keys.
        places = random.permutation(ROWS)
        rows["offset"] = places * RECORD
        keys = hours << INDEX_BITS | rows["global_index"].astype(np.int64)
        data = np.zeros((ROWS, 2), "<i8")
        data[places] = keys[:, None]
        pile.add(hours, rows, data.tobytes(), frame)
    return pile


@pytest.mark.parametrize("parts", [1, 2, 7, 100])
def test_parts_hold_every_row_once(parts: int) -> None:
    pile = filled()
    size = pile.size_bytes
    blocks = pile.take(FRAMES)
    cuts = key_cuts(blocks, size // parts)
    assert parts <= len(cuts) <= parts + 1
    ends = [end for _, end in cuts]
    assert [first for first, _ in cuts[1:]] == ends[:-1]
    seen = []
    for first, end in cuts:
        keys, rows, records = sorted_part(blocks, first, end)
        assert first <= keys[0] <= keys[-1] < end
        assert (np.diff(keys) > 0).all()
        assert (keys & INDEX_MASK).tolist() == rows["global_index"].tolist()
        assert rows["offset"].tolist() == list(range(0, len(rows) * RECORD, RECORD))
        assert np.frombuffer(records, "<i8").tolist() == np.repeat(keys, 2).tolist()
        assert len(keys) < 2 * FRAMES * ROWS / parts + 64 * len(blocks)
        seen.append(keys)
    assert len(np.concatenate(seen)) == FRAMES * ROWS


def test_flushes_that_fail_leave_few_blocks() -> None:
    """Look-ups go through all of them."""
    pile = FarPile()
    position = 0
    for _ in range(100):
        blocks = pile.take(position)
        for _ in range(11):
            rows = np.zeros(1, INDEX_ENTRY)
            rows["global_index"], rows["size"] = position + 1, 8
            pile.add(np.array([5]), rows, position.to_bytes(8, "little"), position)
            position += 1
        pile.thaw(blocks)
    blocks = pile.take(position)
    assert len(blocks) < 20
    keys, _, records = sorted_part(blocks, 0, 6 << INDEX_BITS)
    assert (keys & INDEX_MASK).tolist() == list(range(1, position + 1))
    assert np.frombuffer(records, "<i8").tolist() == list(range(position))


def test_a_row_larger_than_a_part_is_a_part() -> None:
    """The bodies of few rows may be all there is of a pile."""
    pile = FarPile()
    rows = np.zeros(2, INDEX_ENTRY)
    rows["global_index"], rows["size"], rows["offset"] = [1, 2], 1_000, [0, 1_000]
    pile.add(np.array([5, 6]), rows, bytes(2_000), 0)
    blocks = pile.take(1)
    cuts = key_cuts(blocks, 10)
    parts = [sorted_part(blocks, *cut) for cut in cuts]
    assert sum(len(keys) for keys, _, _ in parts) == 2
