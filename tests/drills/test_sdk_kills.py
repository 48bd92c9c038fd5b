"""The SDK loses nothing, sends nothing twice and hands out nothing early, whatever is killed.

The drills run as the programs that people run by hand, so that their processes, threads and event
loops are their own; a page with seed and folder is what a failure shows. What shows that a drill
can fail is the same drill with a client that is wrong on purpose.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("sdk_kills.py")
COURSES = ("broker", "shards", "cluster")


def run(course: str, rounds: int, seed: int, timeout_s: float, plant: str = "none") -> str:
    """The page of a run, if it ended as it should: well, or with a planted fault that was found."""
    command = [sys.executable, str(PROGRAM), course, "--rounds", str(rounds)]
    command += ["--seed", str(seed), "--plant", plant]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    expected = 0 if plant == "none" else 1
    assert done.returncode == expected, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("course", COURSES)
def test_a_few_faults(course: str) -> None:
    run(course, 3, seed=20130101, timeout_s=300)


@pytest.mark.drill
@pytest.mark.parametrize("course", COURSES)
def test_many_faults(course: str) -> None:
    run(course, 100, seed=20131231, timeout_s=3_000)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        ("new-sequence", "there more than once"),
        ("told-done", "lost although it was acknowledged"),
        ("too-certain", "there although it was told not to be"),
    ],
)
def test_a_client_that_is_wrong_is_found(plant: str, found: str) -> None:
    assert found in run("broker", 1, seed=20130101, timeout_s=300, plant=plant)
