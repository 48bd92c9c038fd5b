"""Runs of a ready queue: first in, first out, whatever the mix of pushes and pops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.run_file import RunFile
from tests.storage.fake_disk import FakeDisk


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=20))
@settings(max_examples=60, deadline=None)
def test_first_in_first_out(steps: list[tuple[bool, int]]) -> None:
    disk = FakeDisk()
    run = RunFile(disk, "run")
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
    run = RunFile(disk, "run")
    assert run.pop(5).tolist() == []
    run.close()
    assert disk.listdir("") == []
