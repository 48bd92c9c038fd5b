"""An adopted tick and the own clock: wait, catch up, or go."""

from __future__ import annotations

import pytest

from delaylog.replication.alignment import Align, Alignment, align
from delaylog.replication.watermark import EpochTick


@pytest.mark.parametrize(
    ("tick_ms", "clock_ms", "expected"),
    [
        (1_000, 1_000, Alignment(Align.GO, 0, 1_000, False)),
        (1_000, 1_049, Alignment(Align.GO, -49, 1_049, False)),
        (1_000, 1_050, Alignment(Align.CATCH_UP, -50, 1_050, False)),
        (1_000, 9_000_000, Alignment(Align.CATCH_UP, -8_999_000, 9_000_000, False)),
        (1_001, 1_000, Alignment(Align.WAIT, 1, 1_001, False)),
        (3_000, 1_000, Alignment(Align.WAIT, 2_000, 3_000, False)),
        (3_001, 1_000, Alignment(Align.WAIT, 2_001, 3_001, True)),
    ],
)
def test_align(tick_ms: int, clock_ms: int, expected: Alignment) -> None:
    assert align(tick_ms, clock_ms) == expected


def test_a_ticks_time_is_as_fine_as_it_may_be() -> None:
    # The wall clock stood in the second that was handed out.
    assert EpochTick(1, 10, 0, 0, 10_250).time_ms == 10_250
    # Dispatch was behind: only the second counts.
    assert EpochTick(1, 10, 0, 0, 99_250).time_ms == 10_000
