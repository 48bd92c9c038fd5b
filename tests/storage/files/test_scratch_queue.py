"""Runs of a ready queue: first in, first out, whatever the mix of pushes and pops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.scratch_queue import BLOCK_VALUES, ScratchQueue
from tests.effort import tries
from tests.storage.fake_disk import FakeDisk


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=20))
@settings(max_examples=tries(60), deadline=None)
def test_first_in_first_out(steps: list[tuple[bool, int]]) -> None:
    disk = FakeDisk()
    run = ScratchQueue(disk, "run")
    model: list[int] = []
    value = -(2**40)
    for push, count in steps:
        if push:
            values = np.arange(value, value + count) * 2**20
            value += count
            run.push(values)
            model += values.tolist()
        else:
            assert run.pop(count).tolist() == model[:count]
            del model[:count]
        assert len(run) == len(model)
        if not model and disk.exists("run") and not push:
            assert disk.content("run") == b"" or count == 0, "an empty run takes no space"
    run.close()
    assert not disk.exists("run")


def test_a_run_without_a_push_has_no_file() -> None:
    disk = FakeDisk()
    run = ScratchQueue(disk, "run")
    assert run.pop(5).tolist() == []
    run.close()
    assert disk.listdir("") == []


def test_a_flipped_bit_is_an_error_before_anything_is_popped() -> None:
    """In a block that was popped in part already, too."""
    for at in (0, BLOCK_VALUES - 1, BLOCK_VALUES, 2 * BLOCK_VALUES + 5):
        disk = FakeDisk()
        run = ScratchQueue(disk, "run")
        for size in (5, 3 * BLOCK_VALUES - 100):
            run.push(np.arange(size))
        disk.flip("run", at * 64 + 7)
        taken = 0
        while taken + 700 <= at // BLOCK_VALUES * BLOCK_VALUES:
            taken += len(run.pop(700))
        with pytest.raises(CorruptionError) as caught:
            run.pop(at + 1 - taken)
        assert taken <= at
        assert caught.value.path == "run"
        assert caught.value.position == at // BLOCK_VALUES * BLOCK_VALUES * 8


def test_a_disk_too_full_to_shorten_the_file_loses_nothing() -> None:
    """Some file systems need space to give space back."""
    disk = FakeDisk()
    run = ScratchQueue(disk, "run")
    run.push(np.arange(100))
    disk.full_at = range(1, 1_000)
    assert run.pop(100).tolist() == list(range(100))
    assert len(run) == 0
    disk.full_at = frozenset()
    run.push(np.arange(500, 510))
    assert run.pop(20).tolist() == list(range(500, 510))
    assert disk.content("run") == b""


def test_a_run_that_is_never_empty_does_not_grow(tmp_path: Path) -> None:
    """A group with a steady backlog pushes and pops for months."""
    run = ScratchQueue(OsFileSystem(), str(tmp_path / "run"))
    step = 8 * BLOCK_VALUES
    run.push(np.arange(2 * step))
    for at in range(0, 60 * step, step):
        run.push(np.arange(at + 2 * step, at + 3 * step))
        assert run.pop(step)[[0, -1]].tolist() == [at, at + step - 1]
    assert len(run) == 2 * step
    assert (tmp_path / "run").stat().st_blocks * 512 < 12 * step * 8
    assert run.pop(3 * step)[[0, -1]].tolist() == [60 * step, 62 * step - 1]
    run.push(np.arange(5))
    assert run.pop(5).tolist() == list(range(5))
