"""Checkpoints: the newest two, either of which is enough, and neither of which is believed blindly.

Method: write, damage, cut at every file operation; what is loaded is always one that was written
whole, and after a finished write the newest.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from delaylog.storage.checkpoint import (
    NO_CHECKPOINT,
    Checkpoint,
    FarRuns,
    Kept,
    checkpoint_names,
    kept_checkpoints,
    load_newest,
    saved_hours,
    write_checkpoint,
)
from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.hours.far.sorted_run import RunFacts, run_size
from delaylog.storage.hours.hour_table import HourCounts, HourTable
from delaylog.storage.layout import INDEX_ENTRY, STATE_ENTRY
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival

FOLDER = "data"


def state(number: int) -> dict[str, Any]:
    return {"epoch": number, "hours": {472_222: [number, 0]}, "blob": bytes([number]) * 3_000}


def written(count: int) -> FakeDisk:
    disk = FakeDisk()
    disk.mkdir(FOLDER)
    disk.sync_all()
    for number in range(1, count + 1):
        kept = write_checkpoint(disk, FOLDER, state(number), number * 100)
        assert kept == [Kept(n * 100, n * 100) for n in range(max(number - 1, 1), number + 1)]
    return disk


def test_a_new_folder_has_none() -> None:
    assert load_newest(written(0), FOLDER) is None


@pytest.mark.parametrize("count", [1, 2, 3, 11])
def test_the_newest_two_are_kept(count: int) -> None:
    disk = written(count)
    assert checkpoint_names(disk, FOLDER) == [
        f"checkpoint-{n}" for n in range(max(count - 1, 1), count + 1)
    ]
    assert load_newest(disk, FOLDER) == Checkpoint(state(count), count * 100)


def test_damage_falls_back_then_raises() -> None:
    """Any flipped bit of the newest: the older one. Of both: an error that names a file."""
    disk = written(3)
    size = len(disk.content("data/checkpoint-3")) * 8
    for bit in [*range(32 * 8), *range(32 * 8, size, 997), size - 1]:
        disk.flip("data/checkpoint-3", bit)
        assert load_newest(disk, FOLDER) == Checkpoint(state(2), 200)
        disk.flip("data/checkpoint-3", bit)
    assert load_newest(disk, FOLDER) == Checkpoint(state(3), 300)
    disk.flip("data/checkpoint-3", 300)
    disk.flip("data/checkpoint-2", 300)
    with pytest.raises(CorruptionError) as caught:
        load_newest(disk, FOLDER)
    assert caught.value.path == "data/checkpoint-3"


def test_a_damaged_one_does_not_count_as_kept() -> None:
    """The positions kept say which log is still needed, so a damaged checkpoint frees nothing."""
    disk = written(2)
    disk.flip("data/checkpoint-2", 300)
    assert write_checkpoint(disk, FOLDER, state(3), 300) == [Kept(300, 300)]


def test_a_damaged_one_removes_no_older_one() -> None:
    """Two that can be read stay there until the newest two are intact."""
    disk = written(2)
    disk.flip("data/checkpoint-2", 300)
    write_checkpoint(disk, FOLDER, state(3), 300)
    disk.flip("data/checkpoint-3", 300)
    assert load_newest(disk, FOLDER) == Checkpoint(state(1), 100)
    disk.flip("data/checkpoint-3", 300)
    write_checkpoint(disk, FOLDER, state(4), 400)
    assert checkpoint_names(disk, FOLDER) == ["checkpoint-3", "checkpoint-4"]


def test_log_in_front_of_it_may_be_needed_too() -> None:
    """What a checkpoint says of that is kept with it, whatever the other one needs."""
    disk = written(2)
    assert write_checkpoint(disk, FOLDER, state(3), 300, 120) == [Kept(200, 200), Kept(300, 120)]
    disk = disk.restart("nothing")
    assert kept_checkpoints(disk, FOLDER)[1] == Kept(300, 120)
    assert write_checkpoint(disk, FOLDER, state(4), 400) == [Kept(300, 120), Kept(400, 400)]


@pytest.mark.parametrize("survival", SURVIVALS)
def test_crash_at_every_operation(survival: Survival) -> None:
    steps = written(3).count - written(2).count
    for at in range(1, steps + 1):
        for seed in range(8):
            disk = written(2)
            disk.crash_at = disk.count + at
            with pytest.raises(DiskCrashed):
                write_checkpoint(disk, FOLDER, state(3), 300)
            after = disk.restart(survival, seed * 100 + at)
            found = load_newest(after, FOLDER)
            assert found in (Checkpoint(state(2), 200), Checkpoint(state(3), 300))
            # Leftovers of the write that was cut are in nobody's way.
            write_checkpoint(after, FOLDER, state(4), 400)
            assert load_newest(after.restart("nothing"), FOLDER) == Checkpoint(state(4), 400)


def test_a_finished_write_survives() -> None:
    for survival in SURVIVALS:
        assert load_newest(written(3).restart(survival, 5), FOLDER) == Checkpoint(state(3), 300)


def test_faults_leave_the_older_ones() -> None:
    """A full or failing disk in any operation: the two that were there still are."""
    steps = written(3).count - written(2).count
    for at in range(1, steps):
        for full in (True, False):
            disk = written(2)
            fault = frozenset([disk.count + at])
            disk.full_at, disk.fail_at = (fault, frozenset()) if full else (frozenset(), fault)
            try:
                write_checkpoint(disk, FOLDER, state(3), 300)
            except (DiskFullError, DiskFailedError):
                found = load_newest(disk, FOLDER)
                assert found in (Checkpoint(state(2), 200), Checkpoint(state(3), 300))
            disk.full_at = disk.fail_at = frozenset()
            write_checkpoint(disk, FOLDER, state(4), 400)
            assert load_newest(disk, FOLDER) == Checkpoint(state(4), 400)


def test_log_before_it_is_read_with_it() -> None:
    disk = written(1)
    write_checkpoint(disk, FOLDER, state(2), 300, 120)
    found = load_newest(disk, FOLDER)
    assert found == Checkpoint(state(2), 300, 180)
    assert found.log_from == 120


def test_hours_near_and_far_and_the_runs_of_the_far_ones() -> None:
    """What a reader of a folder gets is what the store of hours had."""
    counts = HourCounts(9, 4, 700, 1_000, 1)
    table = HourTable()
    table.restore({100: counts}, None)
    table.set_border(200)
    table.take_numbers(np.array([300]), np.array([5]), 650)
    old, new, states = (RunFacts(n, 5, 40, 300 << 32 | 1, 300 << 32 | 5, 0, 650) for n in (1, 2, 3))
    sets = [[1, [[*astuple(old)]]], [0, [[*astuple(new)]]]]
    tier = {"next": 4, "rows": sets, "states": {1: [[0, [[*astuple(states)]]]]}}
    members = {"hours": saved_hours(table.near), "far": {"hours": table.saved(), "tier": tier}}
    disk = written(0)
    write_checkpoint(disk, FOLDER, members, 700)
    found = load_newest(disk, FOLDER)
    assert found is not None
    assert found.hours == {100: counts}
    assert (found.table.far_from, found.table[300].rows, found.table[300].living) == (200, 5, 5)
    assert found.runs == FarRuns((old, new), {1: (states,)})
    assert found.runs.sizes == {
        "1.run": run_size(old, INDEX_ENTRY),
        "2.run": run_size(new, INDEX_ENTRY),
        "3.run": run_size(states, STATE_ENTRY),
    }


def test_a_folder_without_one_has_nothing() -> None:
    nothing = NO_CHECKPOINT
    assert (nothing.position, nothing.told_ms, nothing.hours, nothing.id_key) == (0, 0, {}, b"")
    assert (list(nothing.topics()), list(nothing.table), nothing.runs) == ([], [], FarRuns())
