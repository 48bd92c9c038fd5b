"""The index of names: a dict of hashes that does not grow with what was forgotten."""

from __future__ import annotations

from random import Random

import numpy as np

from delaylog.broker.engine.schedules.table import NameIndex


def test_it_is_a_dict() -> None:
    """Entered, replaced, forgotten and entered again."""
    random, index, model = Random(1), NameIndex(), dict[int, int]()
    hashes = [random.randrange(-(2**63), 2**63) or 1 for _ in range(2_000)]
    for slot in range(9_000):
        hash_ = random.choice(hashes)
        if random.random() < 0.6:
            index.put(np.array([hash_]), np.array([slot]))
            model[hash_] = slot
        elif hash_ in model:
            index.forget(np.array([hash_]))
            del model[hash_]
    assert {hash_: index.find(hash_) for hash_ in hashes} == {
        hash_: model.get(hash_) for hash_ in hashes
    }


def test_it_does_not_grow_with_what_was_forgotten() -> None:
    """A hundred thousand schedules that came and went, one at a time."""
    index = NameIndex()
    for hash_ in range(1, 100_000):
        index.put(np.array([hash_]), np.array([0]))
        index.forget(np.array([hash_]))
    assert index._table.slots <= 8_192
