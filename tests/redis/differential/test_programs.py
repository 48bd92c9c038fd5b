"""Random programs: two redis-servers agree, and we agree with redis-server.

That two of them agree proves the rules of `compare`: whatever they let pass differs between two
real servers or is compared. The programs are the same ones each time, so that a change is judged
by what it does; the drills draw new ones, and for long (`-m drill -k zsets`). A failure prints the
program, made small.
"""

from __future__ import annotations

import pytest

from tests.redis.differential.programs import ALONE, TOGETHER, family_forms, missing, search
from tests.redis.differential.runner import Pair

FAMILIES = (*ALONE, *TOGETHER)
SHORT = 10
LONG = 3_000


@pytest.mark.parametrize("family", FAMILIES)
def test_two_references_agree(twins: Pair, family: str) -> None:
    search(twins, family, family_forms(family), examples=SHORT, always_the_same=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_we_agree(pair: Pair, family: str) -> None:
    forms = family_forms(family)
    assert not missing(pair, forms)
    search(pair, family, forms, examples=2 * SHORT, always_the_same=True)


@pytest.mark.drill
@pytest.mark.parametrize("family", FAMILIES)
def test_two_references_agree_for_long(twins: Pair, family: str) -> None:
    search(twins, family, family_forms(family), examples=LONG)


@pytest.mark.drill
@pytest.mark.parametrize("family", FAMILIES)
def test_we_agree_for_long(pair: Pair, family: str) -> None:
    search(pair, family, family_forms(family), examples=LONG)
