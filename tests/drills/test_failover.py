"""Three real nodes, and one of them fails, is stopped, cut off, wiped, slow, or hands over.

`delaylog drill` runs as people run it, so its processes are its own; its object, with seed and
folder, is what a failure shows. Judged is what was promised: nothing lost, nothing early, repeats
only of what was handed out in the last 50 ms (none where it was planned), folders that are the
same on all nodes, and that the cluster serves again: within seconds where a node hangs or is cut
off. Shorter times are reported, not asserted: machines differ. Where a drill needs rights or a
program, it fails and says which.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.drills.trio import NODES, Trio
from tests.programs import run_program

PROGRAM = Path(sys.executable).with_name("delaylog")


def run(name: str, rounds: int, seed: int, timeout_s: float) -> Any:
    command = [PROGRAM, "drill", name, "--rounds", str(rounds), "--seed", str(seed), "--json"]
    done = run_program(*command, timeout=timeout_s)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    result = json.loads(done.stdout)
    assert result["holds"]
    assert result["lost"] == result["early"] == result["duplicates_over_bound"] == 0
    assert result["rounds"] == rounds
    assert result["sends_acknowledged"] > 20 * rounds, "there was a load"
    return result


SHORT = [("kill-leader", 3), ("handover", 2), ("stop-leader", 1), ("restart-all", 1)]
LONG = [
    *(("kill-leader", 100), ("handover", 50), ("stop-leader", 20), ("restart-all", 20)),
    *(("partition", 20), ("blank-node", 10), ("slow-disk", 12), ("clock-step", 18)),
    *(("cut-tcp", 8), ("black-hole", 4), ("hang-leader", 3), ("failovers", 100)),
    *(("certificates", 2), ("busy-machine", 2)),
]


@pytest.mark.parametrize(("name", "rounds"), SHORT)
def test_a_few_rounds(name: str, rounds: int) -> None:
    result = run(name, rounds, seed=20130101, timeout_s=900)
    if name == "handover":
        (figures,) = result["cases"].values()
        assert figures["tick_drift"]["max"] == 0, "it goes on at the slot that was handed over"


@pytest.mark.drill
@pytest.mark.parametrize(("name", "rounds"), LONG)
def test_many_rounds(name: str, rounds: int) -> None:
    run(name, rounds, seed=20131231, timeout_s=3_000)


def test_a_cluster_is_found_when_its_late_node_votes(tmp_path: Path) -> None:
    """A learner saves nothing: the drill waits, or its first fault stops the cluster for good."""

    async def main() -> None:
        async with Trio(tmp_path) as trio:
            await asyncio.gather(trio.start(3), *(trio.start(n, "--new-cluster") for n in (1, 2)))
            leader = await trio.all_vote()
            await trio.nodes[leader].kill()
            others = [node for node in NODES if node != leader]
            assert await trio.leader(others) in others

    asyncio.run(main())


def test_a_drill_without_its_program_says_which(tmp_path: Path) -> None:
    """It fails; it is not skipped."""
    done = run_program(PROGRAM, "drill", "cut-tcp", env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "`nft` is not installed" in done.stderr
    assert "root" in done.stderr


def test_wrong_words() -> None:
    done = run_program(PROGRAM, "drill", "kill-leader", "--rounds", "0")
    assert done.returncode == 2
    assert "--rounds" in done.stderr


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    done = run_program(PROGRAM, "drill", "kill-leader", "--keep", tmp_path)
    assert done.returncode == 2
    assert [each.name for each in tmp_path.iterdir()] == ["theirs"]
