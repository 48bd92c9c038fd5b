"""Random programs: two redis-servers agree, and we agree with redis-server.

That two of them agree proves the rules of `compare`: whatever they let pass differs between two
real servers or is compared. The drills do the same for long; a failure prints the program, made
small, and `run.py --family F --seed S` searches on.
"""

from __future__ import annotations

import pytest

from tests.redis.differential.programs import (
    ALONE,
    EXTRA,
    TOGETHER,
    family_forms,
    missing,
    search,
)
from tests.redis.differential.runner import Pair

FAMILIES = (*ALONE, *TOGETHER)
SHORT = 10
LONG = 3_000


@pytest.mark.parametrize("family", [*FAMILIES, *EXTRA])
def test_two_references_agree(twins: Pair, family: str) -> None:
    search(twins, family, family_forms(family), examples=SHORT)


@pytest.mark.parametrize("family", FAMILIES)
def test_we_agree(pair: Pair, family: str) -> None:
    forms = family_forms(family)
    assert not missing(pair, forms)
    search(pair, family, forms, examples=2 * SHORT)


@pytest.mark.drill
@pytest.mark.parametrize("family", [*FAMILIES, *EXTRA])
def test_two_references_agree_for_long(twins: Pair, family: str) -> None:
    search(twins, family, family_forms(family), examples=LONG)


@pytest.mark.drill
@pytest.mark.parametrize("family", FAMILIES)
def test_we_agree_for_long(pair: Pair, family: str) -> None:
    search(pair, family, family_forms(family), examples=LONG)
