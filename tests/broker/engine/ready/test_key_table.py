"""The table of keys against a Python set."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.ready import key_table
from delaylog.broker.engine.ready.key_table import KeyTable
from tests.effort import tries

INVERSE = pow(int(key_table._MIX), -1, 1 << 64)
ALIKE = [(at * INVERSE) % (1 << 64) for at in range(1, 40)]
"""Their products are 1, 2, 3 …: all fall into the first slot, however large the table."""
KEYS = st.sampled_from(ALIKE) | st.integers(1, 2**64 - 1) | st.integers(1, 300)
BATCHES = st.lists(KEYS, unique=True, max_size=60)


@settings(max_examples=tries(300))
@given(steps=st.lists(st.tuples(st.booleans(), BATCHES), max_size=12), asked=BATCHES)
def test_it_is_a_set(steps: list[tuple[bool, list[int]]], asked: list[int]) -> None:
    table, model = KeyTable(), set[int]()
    for adds, keys in steps:
        # Some of those that are there, too.
        keys = list({*keys, *list(model)[: len(keys)]})
        column = np.array(keys, np.uint64)
        if adds:
            table.add(column)
            model.update(keys)
        else:
            table.remove(column)
            model.difference_update(keys)
        assert table.count == len(model)
        assert set(table.column().tolist()) == model
    every = [*asked, *model, 0]
    found = table.find(np.array(every, np.uint64))
    assert found.tolist() == [key in model for key in every]
    assert all((key in table) == (key in model) for key in asked)
    table.clear()
    assert table.count == 0
    assert not table.find(np.array(every, np.uint64)).any()


def test_many_keys_share_few_slots() -> None:
    """Else each call would be a loop after all."""
    random = np.random.default_rng(1)
    for keys in (np.arange(1, 50_001, dtype=np.uint64), random.integers(1, 2**63, 50_000)):
        table = KeyTable()
        for part in np.array_split(np.unique(keys).astype(np.uint64), 50):
            table.add(part)
        assert table.count == len(np.unique(keys))
        assert sum(map(len, table._more.values())) < table.count // 50
        table.remove(keys.astype(np.uint64))
        assert table.count == 0
        assert not table._more


def test_a_table_shrinks_when_its_keys_have_gone() -> None:
    """A burst of 200,000 keys under lease leaves no 36 MB behind; those that stay are found."""
    table = KeyTable()
    keys = np.random.default_rng(3).integers(1, 1 << 63, 200_000).astype(np.uint64)
    tracemalloc.start()
    try:
        table.add(keys)
        full, _ = tracemalloc.get_traced_memory()
        for at in range(10, len(keys), 1_000):
            table.remove(keys[at : at + 1_000])
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert table.count == 10
    assert table.find(keys[:11]).tolist() == [True] * 10 + [False]
    assert left < full / 20
    table.remove(keys[:10])
    assert table.count == 0
    table.add(keys[:50])
    assert table.find(keys[:51]).tolist() == [True] * 50 + [False]
