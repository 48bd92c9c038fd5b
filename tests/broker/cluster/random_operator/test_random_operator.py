"""An operator who does whatever comes to mind, on real nodes under load, and much of it wrong.

Method: `OperatorRun` draws actions and mistakes from a seed; after each mistake the line that names
the remedy must have been said. In the end all is healed and judged: nothing that was acknowledged
is lost, nothing early, repeats only of a failover's last 50 ms, one leader an epoch, sound folders.
A failure shows the seed and all steps.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.cluster.random_operator.legal import LEGAL
from tests.broker.cluster.random_operator.mistakes import MISTAKES
from tests.broker.cluster.random_operator.operator_run import OperatorRun

SHORT_AHEAD_MS = 4_000
LONG_AHEAD_MS = 45_000
SHORT = (
    *("snapshot", "kill", "wrong index", "add", "clock step", "replace", "old copy"),
    *("full disk", "second process", "hand over", "swapped folders", "wrong file, blank"),
)


def test_a_dozen_steps(tmp_path: Path) -> None:
    """The kinds are fixed here, so that the normal tests see each of them; nodes are drawn."""
    counts = OperatorRun(tmp_path, 20130101, ahead_ms=SHORT_AHEAD_MS).run(0, SHORT)
    assert counts["steps"] >= len(SHORT) - 1
    assert counts["acknowledged"] > 50
    assert counts["epochs"] > 2


@pytest.mark.drill
@pytest.mark.parametrize("seed", range(1, 6))
def test_two_hundred_steps(tmp_path: Path, seed: int) -> None:
    counts = OperatorRun(tmp_path, seed, ahead_ms=LONG_AHEAD_MS).run(200)
    done = {name for name in (*LEGAL, *MISTAKES) if counts[name]}
    assert len(done) > 20, counts
    assert counts["acknowledged"] > 2_000
