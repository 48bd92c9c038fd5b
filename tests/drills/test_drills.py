"""Short drills of one broker: races of changes, a disk without a byte left, kills under schedules.

Where nothing can be mounted, the drill of the full disk fails and says what to do. Schedules with a
planted fault show that their drill can fail.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.drills.drill_program import page_of
from tests.drills.zone_releases import NEWER, ZONE, write_release, zone_file, zones_of


@pytest.mark.parametrize(
    ("controls", "seed"),
    [(50_000, 20150615), pytest.param(1_000_000, 20150616, marks=pytest.mark.drill)],
)
def test_changes_that_race_with_due_times_are_answered_truly(
    tmp_path: Path, controls: int, seed: int
) -> None:
    page_of(tmp_path, "control_race", "--controls", controls, "--seed", seed, timeout_s=1_800)


def test_a_disk_without_a_byte_left(tmp_path: Path) -> None:
    """The broker delivers, settles, restarts, and takes sends again when there is space."""
    page_of(tmp_path, "full_disk", "--seed", 20130101, timeout_s=600)


@pytest.mark.drill
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size_mib", [32, 64, 160])
def test_disks_of_many_sizes(tmp_path: Path, seed: int, size_mib: int) -> None:
    page_of(tmp_path, "full_disk", "--seed", seed, "--size-mib", size_mib, timeout_s=600)


@pytest.mark.parametrize(
    ("course", "rounds", "schedules", "seed"),
    [
        ("broker", 6, 60, 20130101),
        ("cluster", 2, 60, 20130101),
        pytest.param("broker", 25, 250, 20131231, marks=pytest.mark.drill),
        pytest.param("cluster", 25, 250, 20131231, marks=pytest.mark.drill),
    ],
)
def test_each_instant_of_a_schedule_has_one_message(
    tmp_path: Path, course: str, rounds: int, schedules: int, seed: int
) -> None:
    """Over kills, failovers, clock steps and other releases of tzdata."""
    options = (course, "--rounds", rounds, "--schedules", schedules, "--seed", seed)
    page_of(tmp_path, "schedule_kills", *options, timeout_s=1_800)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("skip", "this instant has no message"),
        ("double", "the instant fired twice"),
        ("alien", "no instant of the schedule"),
    ],
)
def test_a_planted_fault_of_schedules_is_found(tmp_path: Path, fault: str, found: str) -> None:
    # One firing in the middle of several is changed, and a round may see only one or two.
    options = ("broker", "--rounds", 3, "--schedules", 8, "--seed", 3, "--plant", fault)
    page = page_of(tmp_path, "schedule_kills", *options, timeout_s=600, statuses=(1,))
    assert found in page, page


def test_a_release_has_the_clocks_that_it_was_written_with(tmp_path: Path) -> None:
    """The judge and the broker read the same files, so those must say what the drill means."""
    change = datetime(2030, 1, 1, tzinfo=UTC)
    write_release(tmp_path, NEWER, zone_file(300, [(int(change.timestamp()), 2_100)]))
    zone = zones_of(tmp_path, NEWER).zone(ZONE)
    before = (change - timedelta(seconds=1)).astimezone(zone).utcoffset()
    assert before == timedelta(seconds=300)
    assert change.astimezone(zone).utcoffset() == timedelta(seconds=2_100)
