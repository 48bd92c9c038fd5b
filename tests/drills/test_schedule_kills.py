"""Each instant has one message over kill -9, failover, clock steps and other releases of tzdata.

The drill runs as the program that people run by hand; its page, with seed and folder, is what a
failure shows. The same drill with a planted fault shows that it can fail.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.drills.zone_releases import NEWER, ZONE, write_release, zone_file, zones_of
from tests.programs import run_program

PROGRAM = Path(__file__).with_name("schedule_kills.py")


def run(folder: Path, course: str, *options: str, timeout_s: float, status: int = 0) -> str:
    """The page of a run that ends with this status."""
    command = [sys.executable, str(PROGRAM), course, *options]
    # A drill that fails keeps its folder, and it is one of this test's.
    done = run_program(*command, timeout=timeout_s, env={**os.environ, "TMPDIR": str(folder)})
    assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(("course", "rounds"), [("broker", "6"), ("cluster", "2")])
def test_a_few_kills(tmp_path: Path, course: str, rounds: str) -> None:
    options = ("--rounds", rounds, "--schedules", "60", "--seed", "20130101")
    run(tmp_path, course, *options, timeout_s=300)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("skip", "this instant has no message"),
        ("double", "the instant fired twice"),
        ("alien", "no instant of the schedule"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, fault: str, found: str) -> None:
    options = ("--rounds", "1", "--schedules", "8", "--seed", "3", "--plant", fault)
    page = run(tmp_path, "broker", *options, timeout_s=120, status=1)
    assert found in page, page


@pytest.mark.drill
@pytest.mark.parametrize("course", ["broker", "cluster"])
def test_many_kills_of_many_schedules(tmp_path: Path, course: str) -> None:
    options = ("--rounds", "25", "--schedules", "250", "--seed", "20131231")
    run(tmp_path, course, *options, timeout_s=1_800)


def test_a_release_has_the_clocks_that_it_was_written_with(tmp_path: Path) -> None:
    """The judge and the broker read the same files, so those must say what the drill means."""
    change = datetime(2030, 1, 1, tzinfo=UTC)
    write_release(tmp_path, NEWER, zone_file(300, [(int(change.timestamp()), 2_100)]))
    zone = zones_of(tmp_path, NEWER).zone(ZONE)
    before = (change - timedelta(seconds=1)).astimezone(zone).utcoffset()
    assert before == timedelta(seconds=300)
    assert change.astimezone(zone).utcoffset() == timedelta(seconds=2_100)
