"""State columns: changes stay in memory until they are written, and then in the file.

Method: a dict as the model under Hypothesis, across pieces, with pages collected, written, lost,
restored and given back; the fake disk's mapping reads a forgotten page from the file again.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.errors import CorruptionError, DiskFullError, NoDescriptorError
from delaylog.storage.hours import state_column
from delaylog.storage.hours.state_column import (
    PAGE_ROWS,
    PAGE_SIZE,
    PIECE_ROWS,
    StateColumn,
    page_runs,
)
from delaylog.storage.layout import STATE_ENTRY, STATE_ENTRY_SIZE, StateArray
from tests.effort import tries
from tests.storage.fake_disk import DiskCrashed, FakeDisk

PATH = "hour/state"
EDGES = [1, 2, 128, 129, 300, PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1, 2 * PIECE_ROWS + 5]
INDEXES = st.lists(st.sampled_from(EDGES) | st.integers(1, 1_000), unique=True, max_size=12)


def entries(values: list[int]) -> StateArray:
    out = np.zeros(len(values), STATE_ENTRY)
    out["state"] = 3
    out["lease"] = values
    out["forward"] = values
    return out


def array(indexes: list[int]) -> np.ndarray:
    return np.array(indexes, np.int64)


def flush(column: StateColumn, pages_max: int = 1 << 30) -> None:
    while runs := column.collect(pages_max):
        column.write(runs)
        column.settle()


@given(st.lists(st.tuples(st.sampled_from("ppprflsx"), INDEXES), max_size=12), st.data())
@settings(max_examples=tries(50), deadline=None)
def test_against_a_dict(steps: list[tuple[str, list[int]]], data: st.DataObject) -> None:
    disk = FakeDisk()
    column = StateColumn(disk, PATH)
    model: dict[int, int] = {}
    written: dict[int, int] = {}
    for number, (step, indexes) in enumerate(steps, 1):
        if step == "p" and indexes:
            column.put(array(indexes), entries([number] * len(indexes)))
            model.update(dict.fromkeys(indexes, number))
            assert column.dirty_pages > 0
        elif step == "r" and indexes:
            column.put(array(indexes), entries([number])[0])
            model.update(dict.fromkeys(indexes, number))
        elif step == "f" and indexes:
            column.put(array(indexes[:1]), entries([number]))
            assert column.get(array(indexes[:1]))["forward"].tolist() == [number]
            column.put(array(indexes[:1]), entries([model.get(indexes[0], 0)]))
        elif step == "l" and not column.absent:
            runs = column.collect(2)
            column.restore(runs)
        elif step == "s":
            flush(column, data.draw(st.integers(1, 4)))
            assert column.dirty_pages == 0
            written = dict(model)
        elif step == "x":
            column.close()
            column = StateColumn(disk, PATH)
            model = dict(written)
        wanted = data.draw(st.permutations([*EDGES, *indexes]))
        one_by_one = [column.has_state(index) for index in wanted]
        found = column.get(array(wanted))
        assert found["lease"].tolist() == [model.get(i, 0) for i in wanted]
        assert one_by_one == (found["state"] != 0).tolist()
    column.close()


def test_nothing_is_written_by_itself() -> None:
    """Stores never reach the file before they are written: the log comes first."""
    disk = FakeDisk()
    column = StateColumn(disk, PATH)
    assert column.absent
    assert column.get(array([1, 5])).tobytes() == bytes(64)
    column.put(array([1, 500]), entries([7, 8]))
    assert not disk.exists(PATH)
    runs = column.collect(100)
    assert [(state_column, first, len(data)) for state_column, first, data in runs] == [
        (0, 0, PAGE_SIZE),
        (0, 499 // PAGE_ROWS, PAGE_SIZE),
    ]
    assert not disk.exists(PATH)
    column.write(runs)
    assert disk.content(PATH)[: PAGE_SIZE * 8].count(7) > 0


def test_changes_behind_a_collected_page_are_kept() -> None:
    """A page that changes while its copy is in flight stays dirty and is not given back."""
    disk = FakeDisk()
    column = StateColumn(disk, PATH)
    column.put(array([1]), entries([1]))
    runs = column.collect(9)
    column.put(array([2]), entries([2]))
    column.write(runs)
    column.settle()
    assert column.get(array([1, 2]))["lease"].tolist() == [1, 2]
    assert column.dirty_pages == 1


def test_a_piece_that_is_being_filled_is_given_back_when_few_of_its_pages_are_dirty() -> None:
    """To give it back, dirty pages are copied; until then its bytes are those in memory."""
    disk = FakeDisk()
    column = StateColumn(disk, PATH)
    rows = np.arange(PAGE_ROWS, PIECE_ROWS + 1, PAGE_ROWS)
    column.put(rows, entries(rows.tolist()))
    column.write(column.collect(len(rows) // 2))
    column.settle()
    file = disk.open(PATH)
    file.pwritev([bytes(PIECE_ROWS * STATE_ENTRY_SIZE)], 0)
    assert column.get(rows)["forward"].tolist() == rows.tolist()

    column.put(rows, entries(rows.tolist()))
    column.write(column.collect(len(rows)))
    column.put(rows[-1:], entries([7]))
    column.settle()
    assert column.get(rows)["forward"].tolist() == [*rows[:-1].tolist(), 7]
    file.pwritev([bytes(PIECE_ROWS * STATE_ENTRY_SIZE)], 0)
    column.settle()
    assert column.get(rows)["forward"].tolist() == [0] * (len(rows) - 1) + [7]


def test_cut_forgets_later_rows() -> None:
    for count in (0, 1, 128, 129, PIECE_ROWS, PIECE_ROWS + 1):
        disk = FakeDisk()
        column = StateColumn(disk, PATH)
        column.put(array(EDGES), entries(EDGES))
        flush(column)
        column.put(array([1]), entries([99]))
        column.cut(count)
        found = column.get(array(EDGES))["lease"].tolist()
        assert found == [index if index <= count else 0 for index in EDGES]
        column.put(array([PIECE_ROWS + 1]), entries([5]))
        flush(column)
        column.close()
        again = StateColumn(disk, PATH)
        assert again.get(array([PIECE_ROWS + 1]))["lease"].tolist() == [5]
        assert len(disk.content(PATH)) % (PIECE_ROWS * STATE_ENTRY_SIZE) == 0


def test_a_cut_that_ended_between_its_steps_is_finished() -> None:
    """A recovery is killed when the file is short: the next one still finds what stands there."""
    for count in (2, 129, PIECE_ROWS + 1):
        disk = FakeDisk()
        column = StateColumn(disk, PATH)
        column.put(array(EDGES), entries(EDGES))
        flush(column)
        disk.crash_at = disk.count + 1
        with pytest.raises(DiskCrashed):
            column.cut(count)
        disk = disk.restart("everything")
        column = StateColumn(disk, PATH)
        column.cut(count)
        found = column.get(array(EDGES))["lease"].tolist()
        assert found == [index if index <= count else 0 for index in EDGES]


@pytest.mark.parametrize("row", [1, 128, 500, PIECE_ROWS + 1])
def test_a_flipped_bit_is_found_when_its_row_is_read(row: int) -> None:
    """In an entry that was stored and in one that never was; the rows beside are served."""
    for stored in (True, False):
        disk = FakeDisk()
        column = StateColumn(disk, PATH)
        others = [index for index in (2, 129, 501, PIECE_ROWS + 2) if index != row]
        column.put(array(others), entries(others))
        if stored:
            column.put(array([row]), entries([row]))
        flush(column)
        column.close()
        for bit in range(0, 256, 5):
            disk.flip(PATH, ((row - 1) * STATE_ENTRY_SIZE) * 8 + bit)
            column = StateColumn(disk, PATH)
            assert column.get(array(others))["lease"].tolist() == others
            with pytest.raises(CorruptionError) as caught:
                column.get(array([others[0], row]))
            with pytest.raises(CorruptionError):
                column.has_state(row)
            assert caught.value.path == PATH
            assert caught.value.position == (row - 1) * STATE_ENTRY_SIZE
            assert f"row {row};" in str(caught.value)
            column.put(array([row]), entries([7]))
            assert column.get(array([row]))["lease"].tolist() == [7], (
                "a store heals: it reads nothing"
            )
            column.close()
            disk.flip(PATH, ((row - 1) * STATE_ENTRY_SIZE) * 8 + bit)


def test_a_file_that_an_earlier_engine_made_keeps_its_name() -> None:
    """It was made and not synced; the process, or another engine in it, went on over the folder."""
    disk = FakeDisk()
    disk.mkdir("hour")
    disk.sync_all()
    for row in (1, 2):
        column = StateColumn(disk, PATH)
        column.put(array([row]), entries([row]))
        flush(column)
        if row == 2:
            column.sync()
        column.close()
    column = StateColumn(disk.restart("nothing"), PATH)
    assert column.get(array([1, 2]))["lease"].tolist() == [1, 2]
    column.close()


def test_a_folder_sync_without_a_descriptor_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Background work goes on after that error and syncs again."""
    disk = FakeDisk()
    disk.mkdir("hour")
    disk.sync_all()
    column = StateColumn(disk, PATH)
    column.put(array([1]), entries([7]))
    flush(column)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_folder", _no_descriptor)
        with pytest.raises(NoDescriptorError):
            column.sync()
    column.sync()
    after = StateColumn(disk.restart("nothing"), PATH)
    assert after.get(array([1]))["lease"].tolist() == [7]


def _no_descriptor(path: str) -> None:
    raise NoDescriptorError(path)


def test_page_runs() -> None:
    assert page_runs(np.array([], np.intp)) == []
    assert page_runs(np.array([3])) == [(3, 1)]
    assert page_runs(np.array([0, 1, 2, 5, 7, 8])) == [(0, 3), (5, 1), (7, 2)]


def test_a_full_disk_refuses_the_write_and_never_the_store() -> None:
    """Storing works without any space; what could not be written is written once it can be."""
    disk = FakeDisk()
    column = StateColumn(disk, PATH)
    disk.full_at = range(disk.count, disk.count + 1_000)
    column.put(array([1, 500]), entries([7, 8]))
    runs = column.collect(100)
    with pytest.raises(DiskFullError):
        column.write(runs)
    column.restore(runs)
    assert column.get(array([1, 500]))["lease"].tolist() == [7, 8]
    disk.full_at = range(0)
    runs = column.collect(100)
    column.write(runs)
    column.put(array([2]), entries([9]))
    column.settle()
    assert column.get(array([1, 2, 500]))["lease"].tolist() == [7, 9, 8]
    assert column.dirty_pages == 1


@given(
    at=st.lists(st.integers(0, 63), max_size=40),
    run=st.tuples(st.integers(0, 63), st.integers(1, 64)),
)
def test_bits_are_set_whatever_shares_a_byte(at: list[int], run: tuple[int, int]) -> None:
    start, stop = min(run[0], run[1] - 1), max(run[0] + 1, run[1])
    for places, change in (
        (set(at), lambda bits: state_column.set_bits(bits, np.array(at, np.int64))),
        (set(range(start, stop)), lambda bits: state_column.set_run(bits, start, stop)),
    ):
        bits = np.zeros(8, np.uint8)
        change(bits)
        assert set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()) == places


@given(
    at=st.lists(st.integers(0, 63), max_size=4),
    run=st.tuples(st.integers(0, 63), st.integers(1, 64)),
)
def test_a_run_is_looked_through_to_its_ends_and_no_further(
    at: list[int], run: tuple[int, int]
) -> None:
    start, stop = min(run[0], run[1] - 1), max(run[0] + 1, run[1])
    bits = np.zeros(8, np.uint8)
    state_column.set_bits(bits, np.array(at, np.int64))
    expected = any(start <= each < stop for each in at)
    assert state_column.any_in_run(bits, start, stop) == expected
