"""The SDK loses nothing, sends nothing twice and hands out nothing early, whatever is killed.

The drills run as the programs that people run by hand, so that their processes, threads and event
loops are their own; a page with seed and folder is what a failure shows. What shows that a drill
can fail is the same drill with a client that is wrong on purpose.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.programs import run_program

PROGRAM = Path(__file__).with_name("sdk_kills.py")
COURSES = ("broker", "shards", "cluster")


def run(
    folder: Path, course: str, rounds: int, seed: int, timeout_s: float, plant: str = "none"
) -> str:
    """The page of a run: all is well, or there is a planted fault."""
    command = [sys.executable, str(PROGRAM), course, "--rounds", str(rounds)]
    command += ["--seed", str(seed), "--plant", plant]
    # A drill that fails keeps its folder, and it is one of this test's.
    done = run_program(*command, timeout=timeout_s, env={**os.environ, "TMPDIR": str(folder)})
    expected = (0,) if plant == "none" else (0, 1)
    assert done.returncode in expected, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("course", COURSES)
def test_a_few_faults(tmp_path: Path, course: str) -> None:
    run(tmp_path, course, 3, seed=20130101, timeout_s=300)


@pytest.mark.drill
@pytest.mark.parametrize("course", COURSES)
def test_many_faults(tmp_path: Path, course: str) -> None:
    run(tmp_path, course, 100, seed=20131231, timeout_s=3_000)


@pytest.mark.drill
@pytest.mark.parametrize(
    ("plant", "found"),
    [
        ("new-sequence", "there more than once"),
        ("told-done", "lost although it was acknowledged"),
        ("too-certain", "there although it was told not to be"),
    ],
)
def test_a_client_that_is_wrong_is_found(tmp_path: Path, plant: str, found: str) -> None:
    """Three kills may interrupt no call that has already taken effect: then there are more."""
    for seed in range(20130101, 20130106):
        page = run(tmp_path, "broker", 3, seed=seed, timeout_s=300, plant=plant)
        if found in page:
            return
    pytest.fail(page)
