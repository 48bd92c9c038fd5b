"""Pairwise covering: few cases in which each two values of different dimensions meet."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

Case = tuple[Any, ...]


def pairwise(*dimensions: Sequence[Any]) -> list[Case]:
    """Cases that hold every pair: greedily, the case first that has most pairs not met yet."""
    cases = list(itertools.product(*dimensions))
    missing = {pair for case in cases for pair in pairs_of(case)}
    chosen = []
    while missing:
        best = max(cases, key=lambda case: len(missing & pairs_of(case)))
        missing -= pairs_of(best)
        chosen.append(best)
    return chosen


def pairs_of(case: Case) -> set[tuple[tuple[int, Any], tuple[int, Any]]]:
    """Each two values of a case with their dimensions."""
    return set(itertools.combinations(enumerate(case), 2))
