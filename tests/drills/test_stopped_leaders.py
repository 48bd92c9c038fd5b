"""Leaders that are stopped under load hand nothing out after another node leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.stopped_leaders import stop_leaders


@pytest.mark.drill
@pytest.mark.parametrize(("rounds", "seconds"), [(30, 4.0), (12, 1.2)])
def test_stopped_leaders_hand_nothing_out(tmp_path: Path, rounds: int, seconds: float) -> None:
    done = stop_leaders(tmp_path, rounds, seconds)
    assert done.received > 20 * rounds, "there was a load"
    assert done.late == 0
