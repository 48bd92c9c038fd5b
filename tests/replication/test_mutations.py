"""The simulator is tested too: each planted fault is found within so many schedules.

Method: run schedules from seed 0 with one rule of the real classes broken until the judge sees it.
A fault that survives means that a rule is no longer watched.
"""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.replication.errors import DivergedError, LostCommitError
from tests.replication.judge import Violation
from tests.replication.mutations import MUTATIONS, SURVIVES, mutated
from tests.replication.world import World

SEEDS_MAX = 6_000
TUNED: dict[str, dict[str, Any]] = {
    "blank_votes": {"wipes": 0.3},
    "readmit_at_once": {"wipes": 1.0, "steps": 1_200},
    "ack_unverified": {"window": 500},
    "commit_unverified": {"window": 500},
    "no_begin_commit": {"hasty": True},
    "no_joint": {"hasty": True, "changes": 0.1, "blank": False, "steps": 800},
}
"""Faults that show where disks are lost, followers far behind, leaders or schedules short or long:
more of that. What is found in tens or hundreds of schedules takes thousands otherwise.
"""


def first_found(name: str, seeds: int) -> str | None:
    """What was seen of a mutation, or None. A node that stops by itself has seen it too."""
    tuned = {"steps": 400} | TUNED.get(name, {})
    steps = tuned.pop("steps")
    with mutated({**MUTATIONS, **SURVIVES}[name]):
        for seed in range(seeds):
            try:
                World(seed, **tuned).run(steps)
            except (Violation, DivergedError, LostCommitError) as found:
                return str(found)
    return None


@pytest.mark.drill
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_found(name: str) -> None:
    assert first_found(name, SEEDS_MAX) is not None


@pytest.mark.long
def test_the_tick_of_any_epoch_is_safe_with_the_position_it_covers() -> None:
    assert first_found("tick_max_t", 500) is None
