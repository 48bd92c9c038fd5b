"""Counts by hour in columns behave as a dictionary that drops zeros."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.storage.columns import MERGE_MIN, CountColumns

few = st.dictionaries(st.integers(0, 60), st.integers(0, 1 << 20), max_size=3 * MERGE_MIN)


@given(st.lists(st.tuples(few, st.integers(1, 3)), max_size=6), st.booleans())
def test_it_counts_as_a_dictionary(steps: list[tuple[dict[int, int], int]], back: bool) -> None:
    """Purpose: small and large additions and removals. Method: a dictionary as the model."""
    table, model = CountColumns(), dict[int, int]()
    for counts, times in [*steps, *((counts, -times) for counts, times in steps if back)]:
        table.add(counts, times)
        for hour, n in counts.items():
            model[hour] = model.get(hour, 0) + times * n
        model = {hour: n for hour, n in model.items() if n}
        assert dict(table.items()) == model
        assert list(table) == sorted(model)
        assert len(table) == len(model)
        assert all((hour in table) == (hour in model) for hour in range(61))
        assert CountColumns.unpack(table.pack()) == table
    if back:
        assert not table


def test_no_count_falls_below_zero() -> None:
    """A wrong count is a bug of ours, found at once."""
    table = CountColumns({1: 1})
    with pytest.raises(OverflowError):
        table.add({1: 1}, -2)
    with pytest.raises(AssertionError):
        CountColumns(dict.fromkeys(range(20), 1)).add(dict.fromkeys(range(20), 1), -2)


def test_an_hour_takes_a_few_bytes() -> None:
    """A topic in 720 hours was 55 KB as a dictionary."""
    counts = {400_000 + hour: 1_000_000 for hour in range(720)}
    tracemalloc.start()
    try:
        table = CountColumns(counts)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table) == 720
    assert taken < 720 * 10
