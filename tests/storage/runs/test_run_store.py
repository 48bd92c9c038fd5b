"""A folder of runs: what is listed, what is opened, and when runs are merged.

The indexes of ids and of texts test what their entries mean; here entries are opaque.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.runs import run_store
from delaylog.storage.runs.run_store import (
    MERGED_RUNS,
    Jobs,
    KeyRun,
    RunStore,
    open_runs,
    read_stored,
)

FS = OsFileSystem()


class Runs(RunStore):
    """Runs that a test writes."""

    def write(self, count: int, position: int) -> None:
        """Append a run with some entries."""
        column = np.arange(1, count + 1)
        runs = list(self._runs)
        drive(self._store(column.astype(np.uint64), column.astype(np.int64), runs))
        drive(self._keep(runs, position))

    @property
    def counts(self) -> list[int]:
        return [run.count for run in self._runs]

    def start_of_merge(self, counts: list[int]) -> int | None:
        """Where a merge of runs with these counts begins."""
        self._runs = [FakeRun(count) for count in counts]  # type: ignore[misc]
        return self._crowded()


def drive(jobs: Jobs) -> None:
    """Run jobs as a host does, which tells the work of a job's error."""
    try:
        job = next(jobs)
        while True:
            try:
                job()
            except DiskFullError as error:
                job = jobs.throw(error)
            else:
                job = next(jobs)
    except StopIteration:
        pass


class FakeRun:
    """A run of which only the size matters."""

    def __init__(self, count: int) -> None:
        self.count = count


def test_runs_are_found_again(tmp_path: Any) -> None:
    """In the order of their writing, with the position of the last one; other files go."""
    runs = Runs(FS, str(tmp_path))
    for count, position in ((3, 10), (2, 20), (5, 30)):
        runs.write(count, position)
    runs.close()
    (tmp_path / "9.ids").write_bytes(b"cut short")
    (tmp_path / "notes.txt").write_bytes(b"not of this index")
    again = Runs(FS, str(tmp_path))
    assert (again.counts, again.position, again.set_aside) == ([3, 2, 5], 30, "")
    names = ["1.ids", "2.ids", "3.ids", "index", "notes.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    again.close()


@pytest.mark.parametrize("harm", ["missing", "header"])
def test_no_run_stays_open_when_another_is_damaged(
    tmp_path: Any, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before the damaged one are unmapped, or each failed start would leak them."""
    runs = Runs(FS, str(tmp_path))
    for number in range(3):
        runs.write(4, number)
    runs.close()
    if harm == "missing":
        (tmp_path / "3.ids").unlink()
    else:
        (tmp_path / "3.ids").write_bytes(b"x" * 100)
    closed = []
    monkeypatch.setattr(KeyRun, "close", lambda run: closed.append(run.number))
    with pytest.raises(CorruptionError):
        open_runs(FS, str(tmp_path), read_stored(FS, str(tmp_path)))
    assert closed == [1, 2]


@given(st.lists(st.integers(1, 2_000), max_size=60))
def test_merges_keep_runs_few_and_rewrite_little(tmp_path_factory: Any, counts: list[int]) -> None:
    """Merged whenever they are crowded, there are a few runs of each size, and an entry is written
    again about once each time that the index grows fourfold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_store, "SIZE_MIN", 4)
        runs = Runs(FS, str(tmp_path_factory.mktemp("runs")))
        there: list[int] = []
        written = 0
        for count in counts:
            there.append(count)
            while (start := runs.start_of_merge(there)) is not None:
                merged = sum(there[start:])
                assert start < len(there) - 1, "a merge takes two runs or more"
                there[start:] = [merged]
                written += merged
        total = sum(counts)
        sizes = max(total, 4).bit_length() // 2
        assert len(there) <= MERGED_RUNS * sizes
        assert written <= 2 * total * sizes
        runs._runs = []
