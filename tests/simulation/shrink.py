"""Makes the plan of a violation small: fewer actors, faults, calls, limits and turned constants.

A smaller plan is kept if it breaks one of the same promises. Each part of a run has random numbers
of its own, so the parts that stay do about the same as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import deepcopy
from typing import Any, Final

from tests.simulation.plan import Plan
from tests.simulation.world import run

RUNS_MAX: Final = 150
PLAIN: Final[dict[str, Any]] = {
    "topics": 1,
    "groups": 1,
    "keys": 0,
    "ids": 0,
    "order": "time",
    "ttl_share": 0.0,
    "priority_share": 0.0,
    "delay_s": 0.0,
    "slow_share": 0.0,
    "drift": 0.0,
    "archive_hold": False,
    "audit": "off",
    "open_hours": 96,
}
"""Simple values of options."""


def shrunk(plan: Plan, kinds: Collection[str], *, runs_max: int = RUNS_MAX) -> Plan:
    """The smallest plan found that breaks one of these promises."""
    runs = 0
    while runs < runs_max:
        for smaller in _smaller(plan):
            runs += 1
            if run(smaller).kinds & set(kinds):
                plan = smaller
                break
            if runs >= runs_max:
                break
        else:
            break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with a little less, the largest steps first."""
    for members in ("knobs", "limits"):
        names = sorted(getattr(plan, members))
        size = len(names)
        while size:
            for at in range(0, len(names), size):
                left = deepcopy(plan)
                for name in names[at : at + size]:
                    del getattr(left, members)[name]
                yield left
            size //= 2
    for name in plan.actors:
        left = deepcopy(plan)
        del left.actors[name]
        yield left
    for at in range(len(plan.faults)):
        left = deepcopy(plan)
        del left.faults[at]
        yield left
    for name, (_, count) in plan.actors.items():
        for fewer in sorted({count // 2, count - 1} - {0, count}):
            left = deepcopy(plan)
            left.actors[name][1] = fewer
            yield left
    for name, value in PLAIN.items():
        if plan.options[name] != value:
            left = deepcopy(plan)
            left.options[name] = value
            yield left
