"""The filter of stored ids: what was added passes, hardly anything else does."""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.storage.runs.id_index import BYTES_AN_ID, COUNT_MIN, IdFilter
from delaylog.storage.runs.recent_ids import FEW_KEYS_MAX
from delaylog.storage.runs.run_store import KeyArray


def keys_of(count: int, seed: int) -> KeyArray:
    return np.random.default_rng(seed).integers(1, 1 << 64, count, np.uint64, endpoint=False)


@pytest.mark.parametrize("count", [1, FEW_KEYS_MAX, 1_000, COUNT_MIN, 200_000])
@pytest.mark.parametrize("ordered", [True, False])
def test_what_was_added_passes(count: int, *, ordered: bool) -> None:
    keys = keys_of(count, 1)
    keys = np.sort(keys) if ordered else keys
    filter_ = IdFilter(count)
    assert len(filter_.passing(keys)) == 0, "it begins empty"
    filter_.add(keys)
    assert filter_.passing(keys).tolist() == list(range(count))
    assert [len(filter_.passing(keys[at : at + 1])) for at in range(min(count, 50))].count(0) == 0
    assert filter_.count == count


def test_one_by_one_is_the_same() -> None:
    filter_ = IdFilter(0)
    filter_.add(keys_of(COUNT_MIN, 2))
    asked = keys_of(20_000, 3)
    whole = filter_.passing(asked).tolist()
    parts = [
        filter_.passing(asked[at : at + FEW_KEYS_MAX]) + at
        for at in range(0, len(asked), FEW_KEYS_MAX)
    ]
    assert np.concatenate(parts).tolist() == whole


@pytest.mark.parametrize(("filled", "share"), [(1.0, 0.006), (0.75, 0.003), (2.0, 0.06)])
def test_few_others_pass(filled: float, share: float) -> None:
    """At two bytes an id as it is made, and at one byte."""
    count = 100_000
    filter_ = IdFilter(count)
    assert filter_.size_bytes <= BYTES_AN_ID * count
    filter_.add(keys_of(int(count * filled), 4))
    assert len(filter_.passing(keys_of(200_000, 5))) / 200_000 < share
