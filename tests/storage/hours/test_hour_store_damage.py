"""Hours whose files rot, shrink or go: found when they are read, made again where that can be.

Method: a small store of two hours, one file of it changed at a time.
"""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.storage.errors import CorruptionError
from delaylog.storage.hours.hour_store import HourStore
from tests.storage.fake_disk import DiskCrashed
from tests.storage.hours.hour_model import (
    FIRST,
    FOLDER,
    REGIONS,
    TAG,
    check_chains,
    disk_name,
    open_store,
    run,
    small_store,
)


@pytest.mark.parametrize("name", REGIONS)
def test_rot_in_an_hour(name: str) -> None:
    """verify() finds any flipped bit of rows, bodies and extents, and names the file."""
    disk, store, _ = small_store()
    folder = store.folders.hour(FIRST)
    path = f"{folder.folder}/{name}"
    for bit in range(0, len(disk.content(path)) * 8, 37):
        disk.flip(path, bit)
        with pytest.raises(CorruptionError) as caught:
            list(folder.verify())
        assert caught.value.path == path
        disk.flip(path, bit)
    for _ in folder.verify():
        pass


def test_rot_in_rows_is_refused_when_read() -> None:
    """A row that does not say its own number, and a chain that does not lead back."""
    disk, store, model = small_store()
    folder = store.folders.hour(FIRST)
    path = f"{folder.folder}/delay.index"
    disk.flip(path, (112 * 3 + 16) * 8)
    with pytest.raises(CorruptionError):
        store.rows(np.array(model.refs, np.int64))
    disk.flip(path, (112 * 3 + 16) * 8)
    store.rows(np.array(model.refs, np.int64))
    second = max(s for s in range(20) if folder.heads.get().count[s] > 1)
    newest = int(folder.heads.get().newest[second])
    disk.flip(path, (112 * (newest - 1) + 20) * 8 + 6)
    with pytest.raises(CorruptionError):
        list(folder.walk_second(second, 99))


@pytest.mark.parametrize("name", REGIONS)
def test_missing_bytes_below_a_checkpoint(name: str) -> None:
    """Recovery refuses an hour that is shorter than its checkpoint says."""
    disk, store, _ = small_store()
    counts = dict(store.counts.near)
    path = f"{store.folders.hour(FIRST).folder}/{name}"
    store.close()
    disk.open(path).truncate(len(disk.content(path)) - 1)
    with pytest.raises(CorruptionError):
        open_store(disk, counts)


def test_damaged_second_index_is_rebuilt() -> None:
    """Any flipped bit of second.index, or its loss: the same heads as before."""
    disk, store, model = small_store()
    run(store.flusher.sync())
    counts = dict(store.counts.near)
    path = f"{store.folders.hour(FIRST).folder}/second.index"
    store.close()
    for bit in (0, 40, 70, 130, 200, 250, 32 * 8, 9_000, 57_631 * 8):
        disk.flip(path, bit)
        check_chains(open_store(disk, counts), model)
        disk.flip(path, bit)
    disk.unlink(path)
    check_chains(open_store(disk, counts), model)


def test_unknown_folders_go_and_ended_hours_are_removed() -> None:
    disk, store, model = small_store()
    assert store.folders.hour(FIRST).files.count
    store.remove(FIRST)()
    assert disk.listdir(FOLDER) == [disk_name(FIRST + 1)]
    assert not store.known(np.array([model.refs[0]], np.int64)).any()
    store.close()
    open_store(disk, {})
    assert disk.listdir(FOLDER) == []


def test_an_hour_removed_behind_a_checkpoint() -> None:
    """A checkpoint that still counts an ended hour can be recovered, wherever removal was cut."""
    disk, store, model = small_store()
    run(store.flusher.sync())
    for hour in store.counts:
        store.counts[hour].living = 0
    before = dict(store.counts.near)
    start = disk.count
    store.remove(FIRST)
    steps = disk.count - start
    for at in range(1, steps + 2):
        disk, store, model = small_store()
        disk.sync_folder("")
        disk.sync_folder("data")
        run(store.flusher.sync())
        disk.sync_all()
        if at <= steps:
            disk.crash_at = disk.count + at
        try:
            store.remove(FIRST)
        except DiskCrashed:
            assert at <= steps
        for survival in ("everything", "nothing") if at > steps else ("sectors",):
            after = disk.restart(survival, at)
            again = open_store(after, dict(before))
            later = np.array([ref for ref in model.refs if ref >> 43 != FIRST], np.int64)
            assert len(again.rows(later)) == len(later)
            assert FIRST not in again.counts or again.flushed(FIRST) == before[FIRST].rows


@pytest.mark.parametrize("epoch", [TAG, TAG - 1, TAG + 500, TAG + 1_500])
def test_an_ended_hour_without_a_readable_extent(epoch: int) -> None:
    """Rows of a later leadership were torn, and the hour was removed; earlier ones are damaged."""
    disk, store, _ = small_store()
    run(store.flusher.sync())
    counts = dict(store.counts.near)
    counts[FIRST].living = 0
    path = f"{store.folders.hour(FIRST).folder}/extents"
    store.close()
    disk.put(path, bytes(len(disk.content(path))))
    again = HourStore(disk, FOLDER)
    if epoch == TAG - 1:
        again.recover(counts, 1 << 62, epoch)
        assert FIRST not in again.counts
        assert again.flushed(FIRST) == 0
    else:
        with pytest.raises(CorruptionError, match="extents"):
            again.recover(counts, 1 << 62, epoch)


def test_a_lost_hour_with_living_rows_is_an_error() -> None:
    disk, store, _ = small_store()
    counts = dict(store.counts.near)
    folder = store.folders.hour(FIRST).folder
    store.close()
    disk.remove_tree(folder)
    with pytest.raises(CorruptionError):
        open_store(disk, counts)
