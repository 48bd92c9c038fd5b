"""Where a new leader's dispatch begins when the tick it adopted and its own clock differ.

The tick is ahead: another clock ran ahead. Nothing is handed out before its time by the own clock,
so the wheel waits until that has come up; what is due by it goes out meanwhile. The tick lies
behind: everything between is handed out in order, second by second, until both are close.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

CLOSE_MS: Final = 50
"""So near they count as the same: one round."""
ALARM_MS: Final = 2_000
"""A clock this far behind another node's needs a person."""


class Align(IntEnum):
    """What to do about the difference."""

    GO = 0
    WAIT = 1
    CATCH_UP = 2


class Alignment(NamedTuple):
    """The difference at one moment, and what it asks for."""

    action: Align
    gap_ms: int
    """Tick minus clock."""
    wake_ms: int
    """By the own clock, when the wheel may turn."""
    alarm: bool


def align(tick_ms: int, clock_ms: int) -> Alignment:
    """Compare an adopted tick's time with the own clock."""
    gap_ms = tick_ms - clock_ms
    if gap_ms > 0:
        return Alignment(Align.WAIT, gap_ms, tick_ms, gap_ms > ALARM_MS)
    if gap_ms <= -CLOSE_MS:
        return Alignment(Align.CATCH_UP, gap_ms, clock_ms, False)
    return Alignment(Align.GO, gap_ms, clock_ms, False)
