"""The index of texts finds every entry that was put, and says so if there are too many.

A plain dict of sets is the model. Puts, flushes, merges, removed hours, reopening and power cuts
come in any order.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import HOUR_SHIFT
from delaylog.storage.runs import run_store, text_index
from delaylog.storage.runs.text_index import (
    TextIndex,
    entries_of_few,
    entries_of_keys,
    entries_of_tags,
    key_of_key,
    key_of_tag,
)
from tests.effort import tries
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival

FS = OsFileSystem()
KEYS = st.integers(1, 5) | st.just(2**64 - 1)
HOURS = range(10, 14)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "flush", "merge", "remove", "reopen"]),
        st.lists(KEYS, min_size=1, max_size=6),
    ),
    max_size=25,
)


def opened(fs: Any, folder: str) -> TextIndex:
    """An index whose owner knows that it is whole."""
    index = TextIndex(fs, folder)
    index.whole = True
    return index


def flush(index: TextIndex, position: int) -> None:
    index.begin_flush()
    for job in index.flush_jobs(position):
        job()


def check(index: TextIndex) -> None:
    for job in index.check_jobs():
        job()


def merge(index: TextIndex, hours: list[int]) -> None:
    for job in index.merge_jobs(lambda: np.array(hours, np.int64)):
        job()


@settings(max_examples=tries(150), deadline=None)
@given(steps=STEPS, common=st.sampled_from([3, 1_000]))
def test_against_a_dict(tmp_path_factory: Any, steps: Any, common: int) -> None:
    """A look-up has all refs of hours that still exist; None only if a key was common."""
    folder = str(tmp_path_factory.mktemp("texts"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_index, "COMMON", common)
        patch.setattr(run_store, "SIZE_MIN", 2)
        index, model, ever, hours, serial = opened(FS, folder), {}, {}, list(HOURS), 0
        unflushed: list[tuple[int, int]] = []
        for step, keys in steps:
            if step == "put":
                refs = []
                for key in keys:
                    serial += 1
                    refs.append(hours[serial % len(hours)] << HOUR_SHIFT | serial)
                    model.setdefault(key, set()).add(refs[-1])
                    ever[key] = ever.get(key, 0) + 1
                    unflushed.append((key, refs[-1]))
                index.put(np.array(keys, np.uint64), np.array(refs, np.int64))
            elif step == "flush":
                flush(index, serial)
                unflushed = []
            elif step == "merge":
                merge(index, hours)
            elif step == "remove" and len(hours) > 1:
                gone = hours.pop(0)
                for refs in model.values():
                    refs -= {ref for ref in refs if ref >> HOUR_SHIFT == gone}
            elif step == "reopen":
                index.close()
                index = opened(FS, folder)
                # A replay puts again what came after the last flush.
                for key, ref in unflushed:
                    index.put(np.array([key], np.uint64), np.array([ref], np.int64))
            for key in (1, 2, 2**64 - 1):
                found = index.look_up(key, hours[0])
                if found is None:
                    assert ever[key] > common
                else:
                    assert model.get(key, set()) <= set(found.tolist())
                    assert len(found) <= ever.get(key, 0)
                    assert (np.diff(found) > 0).all()
        index.close()


@pytest.mark.parametrize("rows", [1, 17, 300])
def test_a_look_up_compares_few_columns(tmp_path: Any, rows: int) -> None:
    """However small the sends since the last flush were, and with look-ups between them."""
    index = opened(FS, str(tmp_path))
    for first in range(0, 6_000, rows):
        refs = [10 << HOUR_SHIFT | ref for ref in range(first + 1, first + rows + 1)]
        keys = [1 + ref % 1_000 for ref in refs]
        if rows == 1:
            index.put_few(keys, refs)
        else:
            index.put(np.array(keys, np.uint64), np.array(refs, np.int64))
        assert index.look_up(2**60, 0).tolist() == []
        assert len(index._recent.refs) <= 14
    assert len(index.look_up(7, 0)) == 6
    index.close()


def test_a_merge_keeps_a_run_that_was_written_before_it_began(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge waits for a checkpoint, which writes another run, with entries of a new hour."""
    monkeypatch.setattr(run_store, "SIZE_MIN", 2)
    index, hours = opened(FS, str(tmp_path)), [10]
    jobs = index.merge_jobs(lambda: np.array(hours, np.int64))
    hours.append(11)
    for number in range(1, 20):
        refs = np.array([10 << HOUR_SHIFT | number, 11 << HOUR_SHIFT | number], np.int64)
        index.put(np.array([1, 2], np.uint64), refs)
        flush(index, number)
    for job in jobs:
        job()
    found = index.look_up(2, 10)
    assert found is not None
    assert len(found) == 19
    index.close()


def test_merges_drop_what_is_gone(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of removed hours, entries put twice, and those of common keys take no room."""
    monkeypatch.setattr(text_index, "COMMON", 10)
    index = opened(FS, str(tmp_path))
    keys = np.arange(1, 1_001, dtype=np.uint64)
    for hour in (10, 11, 11, 12):
        refs = hour << HOUR_SHIFT | np.arange(1, 1_001)
        index.put(keys, refs.astype(np.int64))
        index.put(np.full(1_000, 2_000, np.uint64), refs.astype(np.int64))
        flush(index, hour)
    assert index.look_up(2_000, 10) is None
    before = index.count
    merge(index, [11, 12])
    assert not index.crowded
    assert index.count < before * 0.6
    assert index.look_up(5, 11).tolist() == [11 << HOUR_SHIFT | 5, 12 << HOUR_SHIFT | 5]
    assert index.look_up(2_000, 12) is None
    assert index.look_up(2_000, 13).tolist() == []
    index.close()


def test_not_whole_finds_nothing(tmp_path: Any) -> None:
    index = TextIndex(FS, str(tmp_path))
    index.put(np.array([1], np.uint64), np.array([1], np.int64))
    assert index.look_up(1, 0) is None
    flush(index, 7)
    assert index.position == 0
    index.whole = True
    flush(index, 8)
    assert index.position == 8
    index.close()


@pytest.mark.parametrize("survival", SURVIVALS)
def test_a_crash_at_any_operation(survival: Survival, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut the runs are those of `position`, and all of their entries are found."""
    monkeypatch.setattr(run_store, "SIZE_MIN", 1)
    at = 1
    while True:
        disk, flushed = FakeDisk(), 0
        disk.crash_at = disk.count + at
        with contextlib.suppress(DiskCrashed):
            index = opened(disk, "/d")
            for number in range(1, 7):
                index.put(np.array([number % 2 + 1], np.uint64), np.array([number], np.int64))
                flush(index, number)
                flushed = number
                merge(index, [0])
            return
        disk = disk.restart(survival, at)
        index = opened(disk, "/d")
        assert index.position >= flushed
        check(index)
        for key in (1, 2):
            wanted = [n for n in range(1, index.position + 1) if n % 2 + 1 == key]
            assert index.look_up(key, 0).tolist() == wanted
        at += 1


def test_damage_is_noticed(tmp_path: Any) -> None:
    """A flipped byte of a run is found by `check_jobs`, and a missing file by the start."""
    index = opened(FS, str(tmp_path))
    index.put(np.arange(1, 100, dtype=np.uint64), np.arange(1, 100))
    flush(index, 1)
    index.close()
    path = tmp_path / "1.ids"
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    index = opened(FS, str(tmp_path))
    with pytest.raises(CorruptionError, match="damaged run"):
        check(index)
    index.close()
    path.unlink()
    index = TextIndex(FS, str(tmp_path))
    assert index.set_aside
    assert index.position == 0
    index.close()


def test_keys_tell_topics_and_kinds_apart() -> None:
    """The same text as a key, as a tag, and in another topic are three entries."""
    refs = np.array([7], np.int64)
    (tag,) = entries_of_tags(1, [b"x"], refs)[0].tolist()
    assert tag == key_of_tag(1, b"x")
    assert len({tag, key_of_key(1, b"x"), key_of_tag(2, b"x")}) == 3
    keys, owners = entries_of_tags(1, [b"a\nb", b"", b"b"], np.array([1, 2, 3]))
    assert keys.tolist() == [key_of_tag(1, each) for each in (b"a", b"b", b"b")]
    assert owners.tolist() == [1, 1, 3]
    keys, owners = entries_of_keys(1, np.array([0, 9, 0], np.uint64), np.array([1, 2, 3]))
    assert (len(keys), owners.tolist()) == (1, [2])
    few = entries_of_few(1, [0, 9, 0], [b"a\nb", b"", b"b"], [1, 2, 3])
    both = [key_of_tag(1, each) for each in (b"a", b"b", b"b")]
    assert few == ([int(keys[0]), *both], [2, 1, 1, 3])


def test_few_entries_are_found_at_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after they become a column, and after a flush."""
    monkeypatch.setattr(text_index, "UNJOINED_MAX", 3)
    index = opened(FS, str(tmp_path))
    for number in range(1, 6):
        index.put_few([7, 8], [number, number])
        assert index.look_up(7, 0).tolist() == list(range(1, number + 1))
    assert index.recent_count == 10
    flush(index, 1)
    assert index.recent_count == 0
    assert index.look_up(8, 0).tolist() == [1, 2, 3, 4, 5]
    index.close()
