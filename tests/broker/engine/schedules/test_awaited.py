"""Messages that buffered firings wait for, against a list of pairs."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.engine.schedules.table import AwaitedMessages
from tests.effort import tries


@pytest.mark.parametrize("seed", range(tries(20)))
def test_it_is_a_list_of_pairs(seed: int) -> None:
    """A schedule is forgotten with all of its messages when one ends; nothing else remains."""
    random, awaited = Random(seed), AwaitedMessages()
    model: dict[int, int] = {}
    for _ in range(200):
        # A message belongs to one schedule.
        origin = random.randrange(30)
        number = origin % 7
        what = random.randrange(4)
        if what < 2:
            awaited.add(origin, number)
            model[origin] = number
        elif what == 2:
            awaited.forget(number)
            model = {other: of for other, of in model.items() if of != number}
        else:
            origins = random.sample(range(40), 3)
            ended = {model[origin] for origin in origins if origin in model}
            assert awaited.ended(origins) == ended
            model = {other: of for other, of in model.items() if of not in ended}
        assert len(awaited) == len(model)
        assert sorted(awaited.schedules()) == sorted(set(model.values()))
    awaited.clear()
    assert (len(awaited), awaited.schedules()) == (0, [])
