"""Simulated brokers keep their promises, runs repeat exactly, and broken brokers are found out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from delaylog.broker.host.log_commits import LogCommits
from delaylog.storage.log.physical_log import PhysicalLog
from tests.effort import tries
from tests.simulation import shrink
from tests.simulation.marks import MANDATORY
from tests.simulation.plan import Plan, draw
from tests.simulation.run import MARKED_SEEDS_MIN, store
from tests.simulation.world import Result, run

ROOT = Path(__file__).parents[2]
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_seeds_keep_all_promises(part: int) -> None:
    """`make nightly` tries others than `make test`, and enough to demand each mark."""
    seeds = range(part * 10_000, part * 10_000 + tries(48) // PARTS)
    marks: Counter[str] = Counter()
    for seed in seeds:
        plan = draw(seed)
        result = run(plan)
        assert not result.violations, (seed, result.violations[0], store(plan))
        marks += result.marks
    if len(seeds) >= MARKED_SEEDS_MIN:
        assert [name for name in MANDATORY if not marks[name]] == []


def test_a_run_repeats_exactly_in_another_process() -> None:
    """Also where hashes of texts and the addresses of objects differ."""
    seeds = [str(seed) for seed in range(tries(6))]
    program = (
        "import sys\n"
        "from tests.simulation.plan import draw\n"
        "from tests.simulation.world import run\n"
        "for seed in sys.argv[1:]:\n"
        "    result = run(draw(int(seed)))\n"
        "    print(*result.trace, result.digest, sep='\\n')\n"
    )
    outputs = []
    for number in ("1", "2"):
        command = [sys.executable, "-c", program, *seeds]
        path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", str(ROOT / "src"))))
        variables = os.environ | {"PYTHONHASHSEED": number, "PYTHONPATH": path}
        done = subprocess.run(command, check=True, capture_output=True, env=variables)
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]


def _needed(seeds_max: int) -> int:
    """The number of seeds until one fails."""
    return next(seed for seed in range(1, seeds_max + 1) if run(draw(seed)).violations)


def test_a_log_that_does_not_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_only(log: PhysicalLog) -> int:
        log.durable_position = log.written_position
        return log.durable_position

    monkeypatch.setattr(PhysicalLog, "sync", write_only)
    assert _needed(60)


def test_a_story_is_shrunk_to_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def needs_two(plan: Plan) -> Result:
        kinds = {kind for kind, count in plan.actors.values() if count > 1}
        breaks = "send" in kinds and any(fault[1] == "kill" for fault in plan.faults)
        return Result([("rule A", "lost")] if breaks else [])

    monkeypatch.setattr(shrink, "run", needs_two)
    plan = draw(5)
    plan.actors["send more"] = ["send", 9]
    plan.faults += [[3, "kill", 1], [9, "stop", 2]]
    small = shrink.shrunk(plan, {"rule A"}, runs_max=1_000)
    assert [kind for kind, _ in small.actors.values()] == ["send"]
    assert [fault[1] for fault in small.faults] == ["kill"]
    assert (small.knobs, small.limits) == ({}, {})
    assert [count for _, count in small.actors.values()] == [2]


def test_an_answer_before_its_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def reckless(commits: LogCommits) -> int:
        return commits._log.end_position

    monkeypatch.setattr(LogCommits, "_own_position", reckless)
    assert _needed(60)
