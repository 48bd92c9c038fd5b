"""Overlap: the table of decisions."""

from __future__ import annotations

import pytest

from delaylog.broker.rules.schedules.firings import Action, decide_overlap
from delaylog.contract.calls.schedules import OVERLAPS

TABLE = {
    "allow": (Action.FIRE, Action.FIRE, Action.FIRE),
    "skip": (Action.FIRE, Action.SKIP, Action.SKIP),
    "buffer_one": (Action.FIRE, Action.BUFFER, Action.SKIP),
    "replace": (Action.FIRE, Action.REPLACE, Action.REPLACE),
}
"""Without an open message, with one, and with one and a buffered firing."""


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_decisions(overlap: str) -> None:
    """Each policy in each situation."""
    found = tuple(
        decide_overlap(overlap, open_last=open_last, buffered=buffered)
        for open_last, buffered in ((False, False), (True, False), (True, True))
    )
    assert found == TABLE[overlap]
