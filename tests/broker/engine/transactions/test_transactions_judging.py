"""Winners against staged parts: the columns say what a plain count says, whoever staged and won."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.engine.errors import BadRequestError, ConflictError, EngineError
from delaylog.broker.engine.transactions.commands import Winner, parts_of_winners
from delaylog.broker.engine.transactions.table import PartTable
from delaylog.storage.log.payloads import StagedPart
from tests.effort import tries

TOP = (1 << 64) - 1


def table(*parts: tuple[str, int, int, int, int]) -> PartTable:
    """Parts are (producer, part, attempt, number, rows)."""
    made = PartTable()
    for place, (producer, part, attempt, number, rows) in enumerate(parts):
        made.add(StagedPart(1, producer, part, attempt, number, 1, rows, 0, 0), place * 100, rows)
    return made


def expected(parts: list[tuple[str, int, int, int, int]], winners: list[Winner]) -> object:
    """Places, or which winner is wrong and how."""
    names = list(dict.fromkeys(part[0] for part in parts))
    seen, places = set(), []
    for item, winner in enumerate(winners):
        producer = winner.producer
        if producer is None:
            producer = names[0] if len(names) == 1 else ""
        if (producer, winner.part) in seen:
            return BadRequestError, item
        seen.add((producer, winner.part))
        wanted = (producer, winner.part, winner.attempt)
        mine = [place for place, part in enumerate(parts) if part[:3] == wanted]
        if sum(parts[place][4] for place in mine) != winner.rows:
            return ConflictError, item
        places += mine
    return sorted(places)


@pytest.mark.parametrize("seed", range(tries(200)))
def test_it_agrees_with_a_plain_count(seed: int) -> None:
    random = Random(seed)
    names = random.sample(["", "a", "b"], random.randint(1, 3))
    attempts = [0, 1, TOP]
    parts = list(
        {
            (random.choice(names), random.choice([0, 1, 2**32 - 1]), random.choice(attempts), k): k
            for k in range(random.randint(0, 12))
        }
    )
    staged = [(*part, random.randint(1, 3)) for part in parts]
    winners = []
    for _ in range(random.randint(0, 4)):
        producer = random.choice([None, *names, "nobody"])
        part, attempt = random.choice([0, 1, 2**32 - 1]), random.choice(attempts)
        there = {one[0] for one in staged}
        only = next(iter(there)) if len(there) == 1 else ""
        asked = only if producer is None else producer
        rows = sum(one[4] for one in staged if one[:3] == (asked, part, attempt))
        rows += random.random() < 0.05
        winners.append(Winner(producer, part, attempt, rows))
    wanted = expected(staged, winners)
    try:
        got: object = parts_of_winners(table(*staged), winners).tolist()
    except EngineError as error:
        got = type(error), error.item
    assert got == wanted


def test_a_number_that_lacks_in_the_middle() -> None:
    """Its rows are missed; what is there is said."""
    held = table(("p", 7, 3, 0, 10), ("p", 7, 3, 2, 10))
    with pytest.raises(ConflictError) as caught:
        parts_of_winners(held, [Winner(None, 7, 3, 30)])
    assert (caught.value.field, caught.value.item) == ("winners", 0)
    assert caught.value.facts == {"producer": "p", "part": 7, "attempt": 3, "rows": 20}
