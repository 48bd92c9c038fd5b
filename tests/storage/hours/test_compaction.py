"""Compaction of an hour: removed rows take no space, all others are what they were, at any crash.

Method: a store on a fake disk is filled in several flushes; rows are removed, and every look-up is
compared with what it said before. A crash at every operation of a compaction leaves the old files
or the new ones.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, count, islice, zip_longest
from pathlib import Path

import numpy as np
import pytest

from delaylog.storage.errors import NoDescriptorError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.hours import compaction, open_hours
from delaylog.storage.hours.compaction import Removal
from delaylog.storage.hours.hour_reader import HourReader
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.hours.second_index import SecondIndex
from delaylog.storage.hours.state_column import PAGE_ROWS
from delaylog.storage.layout import HOUR_MS, STATE_ENTRY, MessageState, hour_name
from delaylog.storage.work import Work
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, FakeFile, Survival
from tests.storage.hours.hour_model import FIRST, FOLDER, Model, noted_reads, open_store, run

ROWS = 600


def filled(disk: FakeDisk, rows: int = ROWS, size: int = 40) -> tuple[HourStore, Model]:
    store, model = open_store(disk), Model()
    add(store, model, rows, size)
    return store, model


def add(store: HourStore, model: Model, rows: int, size: int = 40) -> None:
    for first in range(0, rows, 97):
        count = min(97, rows - first)
        due = [FIRST * HOUR_MS + (first + k) % 7 * 1000 + k for k in range(count)]
        model.add(store, due, [b"%06d" % (first + k) + b"x" * (size - 6) for k in range(count)], 0)
        run(store.flusher.flush(upto=1 << 62))


@pytest.fixture(autouse=True, params=[16, 32_768])
def rows_of_an_extent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few there are holes, which are extents of their own."""
    monkeypatch.setattr(compaction, "REWRITE_ROWS", request.param)


NONE = np.zeros(ROWS, np.bool_)
GONE = np.arange(ROWS) % 3 != 0
"""What most tests remove."""


def compaction_of(store: HourStore, gone: np.ndarray = GONE) -> Work:
    return store.compact(FIRST, Removal(gone, np.zeros(len(gone), np.bool_), states=False))


def chains(store: HourStore) -> list[list[int]]:
    folder = store.folders.hour(FIRST)
    return [list(chain.from_iterable(folder.walk_second(k, folder.row_count))) for k in range(8)]


def check(store: HourStore, model: Model, gone: np.ndarray) -> None:
    """What was removed is unknown; all else is the model's, in the right chains."""
    refs = np.array(model.refs, np.int64)
    gone = np.concatenate([gone, np.zeros(len(refs) - len(gone), np.bool_)])
    rows = store.rows(refs)
    assert not store.check_tags(refs[gone], rows[gone]).any()
    kept, kept_rows = refs[~gone], rows[~gone]
    assert store.check_tags(kept, kept_rows).all()
    expected = [model.hours[FIRST][k] for k in np.flatnonzero(~gone)]
    assert kept_rows["deliver_at"].tolist() == [due for due, _ in expected]
    assert store.records(kept, kept_rows) == b"".join(record for _, record in expected)
    second = (kept_rows["deliver_at"] - FIRST * HOUR_MS) // 1000
    numbers = kept_rows["global_index"]
    assert chains(store) == [numbers[second == k][::-1].tolist() for k in range(8)]


def check_start(
    disk: FakeDisk, model: Model, gone: np.ndarray, rows: int | None = None
) -> HourStore:
    """The same after a start that keeps so many rows, by default all."""
    model.refs = model.refs[:rows]
    again = HourStore(disk, FOLDER)
    again.recover({FIRST: HourCounts(rows=len(model.refs))}, 1 << 62)
    check(again, model, gone)
    return again


def check_restart(
    disk: FakeDisk, store: HourStore, model: Model, gone: np.ndarray, rows: int | None = None
) -> HourStore:
    """The same after the store was synced and closed."""
    run(store.flusher.sync())
    store.close()
    return check_start(disk, model, gone, rows)


def test_rows_that_are_left_are_what_they_were() -> None:
    """Rows, records, chains and second index, also of rows that come later, and after a restart."""
    disk = FakeDisk()
    store, model = filled(disk)
    size = store.folders.hour(FIRST).log_size
    run(compaction_of(store))
    assert store.folders.hour(FIRST).log_size < size * 0.4
    check(store, model, GONE)
    add(store, model, 120)
    check(store, model, GONE)
    heads = store.folders.hour(FIRST).heads.get()
    assert SecondIndex.decode(heads.encode()) is not None
    again = check_restart(disk, store, model, GONE)
    for step in again.folders.hour(FIRST).verify():
        assert step is None
    assert again.folders.hour(FIRST).heads.rebuild().newest.tolist() == heads.newest.tolist()


def test_large_messages_are_copied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice by number alone would have 32,768 messages of 4 MiB. Some parts have holes."""
    monkeypatch.setattr(compaction, "REWRITE_BYTES", 1 << 20)
    disk = FakeDisk()
    store, model = filled(disk, 60, 200_000)
    gone = np.arange(60) // 10 % 2 == 0
    with monkeypatch.context() as patch:
        read = noted_reads(patch, HourReader, "records", lambda rows: rows["size"].sum())
        run(compaction_of(store, gone))
    assert sum(read) >= 30 * 200_000
    assert max(read) <= 1 << 20
    check(store, model, gone)
    add(store, model, 40)
    check_restart(disk, store, model, gone, rows=60)


def test_rows_that_come_while_files_are_written_aside() -> None:
    """They keep the extents that they came in: a start may cut at any of them."""
    disk = FakeDisk()
    store, model = filled(disk)
    work = compaction_of(store)
    step = next(work)
    assert callable(step)
    step()
    add(store, model, 200)
    run(work)
    check(store, model, GONE)
    check_restart(disk, store, model, GONE, rows=ROWS + 97)


def test_replaced_files_are_closed_by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever closes a deleted file last frees its space: seconds, for gigabytes."""
    store, model = filled(FakeDisk())
    check(store, model, NONE)
    in_job, closed = [False], list[bool]()
    close = FakeFile.close

    def noted(file: FakeFile) -> None:
        closed.append(in_job[0])
        close(file)

    monkeypatch.setattr(FakeFile, "close", noted)
    for step in compaction_of(store):
        if callable(step):
            in_job[0] = True
            step()
            in_job[0] = False
    assert len(closed) > 3
    assert all(closed)
    check(store, model, GONE)


def test_a_second_compaction_and_one_of_everything() -> None:
    store, model = filled(FakeDisk())
    for gone in (GONE, np.arange(ROWS) % 6 != 0, ~NONE):
        run(compaction_of(store, gone))
        check(store, model, gone)
    assert store.folders.hour(FIRST).log_size == 0
    add(store, model, 10)
    check(store, model, ~NONE)


def test_rows_that_lose_only_their_records() -> None:
    store, model = filled(FakeDisk())
    bare = GONE
    run(store.compact(FIRST, Removal(NONE, bare, states=False)))
    refs = np.array(model.refs, np.int64)
    rows = store.rows(refs)
    assert store.check_tags(refs, rows).all()
    assert rows["size"][bare].max() == 0
    expected = b"".join(model.hours[FIRST][k][1] for k in np.flatnonzero(~bare))
    assert store.records(refs, rows) == expected
    assert rows["origin"].tolist() == refs.tolist()


def test_a_reader_in_slices_keeps_its_files() -> None:
    """A walk that has begun ends in the files that it began in."""
    store, model = filled(FakeDisk())
    before = chains(store)[2]
    walk = store.folders.hour(FIRST).walk_second(2, ROWS, slice_rows=8)
    seen = next(walk)
    work = compaction_of(store)
    run(islice(work, 50))
    assert [*seen, *chain.from_iterable(walk)] == before
    run(work)
    check(store, model, GONE)


@pytest.mark.long
@pytest.mark.parametrize("survival", SURVIVALS)
def test_a_crash_at_any_operation(survival: Survival) -> None:
    """The old files or the new ones, whole: with either every row that lives is read."""
    at, kept, replaced = 1, 0, 0
    while True:
        disk = FakeDisk()
        store, model = filled(disk)
        run(store.flusher.sync())
        disk.sync_all()
        disk.crash_at = disk.count + at
        try:
            run(compaction_of(store))
        except DiskCrashed:
            disk = disk.restart(survival, at)
        else:
            break
        again = HourStore(disk, FOLDER)
        again.recover({FIRST: HourCounts(rows=ROWS)}, 1 << 62)
        refs = np.array(model.refs, np.int64)
        whole = again.check_tags(refs, again.rows(refs)).all()
        check(again, model, NONE if whole else GONE)
        kept, replaced = kept + whole, replaced + (not whole)
        assert not [name for name in disk.listdir(f"{FOLDER}/{hour_name(FIRST)}") if "tmp" in name]
        at += 1
    assert kept > 5
    assert replaced > 3


def blocks(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


@pytest.mark.parametrize("rounds", [20])
def test_a_hundred_replacements_leave_little_behind(tmp_path: Path, rounds: int) -> None:
    """Index, records and states of replaced rows: what is left is little more than what lives."""
    fs = OsFileSystem()
    store = HourStore(fs, str(tmp_path))
    store.recover({}, 1 << 62)
    model, per_round = Model(), 2_000
    done = np.zeros(1, STATE_ENTRY)
    done["state"] = MessageState.CANCELLED
    for number in range(rounds):
        add(store, model, per_round, size=100)
        if number:
            refs = np.array(model.refs[-2 * per_round : -per_round], np.int64)
            store.put_states(refs, done)
            run(store.flusher.flush_states())
    run(store.flusher.sync())
    folder = tmp_path / hour_name(FIRST)
    living = per_round * (112 + 32 + 100)
    assert blocks(folder) > 0.9 * rounds * living
    gone = np.arange(rounds * per_round) < (rounds - 1) * per_round
    run(store.compact(FIRST, Removal(gone, np.zeros(len(gone), np.bool_), states=True)))
    os.sync()
    assert blocks(folder) - (folder / "second.index").stat().st_size < 1.5 * living
    check_states = store.get_states(np.array(model.refs[-per_round:], np.int64))
    assert not check_states["state"].any()
    assert PAGE_ROWS == 128
    store.close()


def test_a_compaction_that_is_given_up() -> None:
    """Nothing has changed, and nothing is left aside."""
    disk = FakeDisk()
    store, model = filled(disk)
    run(store.compact(FIRST, Removal(GONE, NONE, states=False), stopping=lambda: True))
    check(store, model, NONE)
    assert not [name for name in disk.listdir(f"{FOLDER}/{hour_name(FIRST)}") if "tmp" in name]


def test_a_compaction_that_is_closed_half_way() -> None:
    """After any of its steps: the store goes on, as that of a leader that steps down does."""
    steps, ended = 0, False
    while not ended:
        steps += 1
        disk = FakeDisk()
        store, model = filled(disk)
        size = store.folders.hour(FIRST).log_size
        work = compaction_of(store)
        run(islice(work, steps))
        ended = work.gi_frame is None
        work.close()
        removed = GONE if store.folders.hour(FIRST).log_size < size else NONE
        add(store, model, 120)
        check(store, model, removed)
        check_restart(disk, store, model, removed)
    assert steps > 5


@pytest.mark.parametrize("told", [True, False])
def test_a_compaction_that_finds_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, *, told: bool
) -> None:
    """At any sync of the folder: the store goes on with the files that have the names.

    The work gets the error of its job, or is closed, as work that runs inline.
    """
    at, failed = 0, True
    while failed:
        disk = FakeDisk()
        store, model = filled(disk)
        size = store.folders.hour(FIRST).log_size
        calls = count()
        failed = False
        with monkeypatch.context() as patched:
            sync = disk.sync_folder

            def sync_folder(path: str, *, sync: Callable[[str], None] = sync) -> None:
                if next(calls) >= at:  # noqa: B023 (called in this turn)
                    raise NoDescriptorError("no descriptor is free")
                sync(path)

            patched.setattr(disk, "sync_folder", sync_folder)
            work = compaction_of(store)
            for step in work:
                try:
                    step()
                except NoDescriptorError as error:
                    failed = True
                    if not told:
                        work.close()
                        continue
                    with pytest.raises(NoDescriptorError):
                        work.throw(error)
        removed = GONE if store.folders.hour(FIRST).log_size < size else NONE
        add(store, model, 120)
        check(store, model, removed)
        run(compaction_of(store))
        check(store, model, GONE)
        check_restart(disk, store, model, GONE)
        at += 1
    assert at > 2


def test_a_compaction_behind_a_replacement_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one finds no descriptor once its files have their names, so its marker stays. The
    second one is closed half way: a start must not take its files for those of the first.
    """
    disk = FakeDisk()
    store, model = filled(disk)
    with monkeypatch.context() as patched:
        sync, calls = disk.sync_folder, count()

        def sync_folder(path: str) -> None:
            if next(calls) >= 3:
                raise NoDescriptorError("no descriptor is free")
            sync(path)

        patched.setattr(disk, "sync_folder", sync_folder)
        with pytest.raises(NoDescriptorError):
            run(compaction_of(store))
    add(store, model, 120)
    check(store, model, GONE)
    work = compaction_of(store)
    run(islice(work, 2))
    work.close()
    check_restart(disk, store, model, GONE)


def test_heads_that_a_split_drops_while_files_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old heads are not written over the file of the new ones."""
    monkeypatch.setattr(open_hours, "HEADS_KEPT_MAX", 0)
    steps, ended = 0, False
    while not ended:
        disk = FakeDisk()
        with monkeypatch.context() as patched:
            patched.setattr(open_hours, "HEADS_KEPT_MAX", 1)
            store, model = filled(disk)
        work = compaction_of(store)
        run(islice(work, steps))
        steps += 1
        # One thread runs the jobs of both in the order in which they come.
        jobs = list(islice(work, 1))
        ended = work.gi_frame is None
        room = store.border.bring_near(FIRST)
        jobs += islice(room, 1)
        run(jobs)
        for rest in zip_longest(work, room):
            run(rest)
        store.close()
        check_start(disk, model, GONE)
    assert steps > 5


def test_a_thread_that_begins_to_read_while_files_are_exchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It enters first, and the exchange waits; or it finds the new files, never closed ones."""
    store, model = filled(FakeDisk())
    folder = store.folders.hour(FIRST)
    entered, exchanged = threading.Event(), threading.Event()
    stale: list[bool] = []

    def read() -> None:
        with folder.files.reading():
            file = folder.files.open("delay.log")
            entered.set()
            assert exchanged.wait(30)
            stale.append(file is not folder.files.open("delay.log"))

    reader, take = threading.Thread(target=read), folder.files.take

    def take_while_a_thread_enters() -> list[File]:
        if not reader.ident:
            reader.start()
            entered.wait(0.2)
        return take()

    monkeypatch.setattr(folder.files, "take", take_while_a_thread_enters)
    run(compaction_of(store))
    exchanged.set()
    reader.join()
    assert stale == [False]
    check(store, model, GONE)


@pytest.mark.parametrize("survival", ["prefix", "sectors"])
@pytest.mark.parametrize("told", [True, False])
def test_a_power_cut_behind_a_compaction_that_found_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, survival: Survival, *, told: bool
) -> None:
    """Its marker was removed by name only, and may come back: rows that were stored since stay, and
    no half-written file of another compaction takes the place of a whole one.
    """
    for seed in range(60):
        disk = FakeDisk()
        store, model = filled(disk)
        run(store.flusher.sync())
        disk.sync_all()
        with monkeypatch.context() as patched:
            sync, calls = disk.sync_folder, count()

            def sync_folder(
                path: str, sync: Callable[[str], None] = sync, calls: count[int] = calls
            ) -> None:
                if next(calls) == seed % 5:  # noqa: B023 (called in this turn)
                    raise NoDescriptorError("no descriptor is free")
                sync(path)

            patched.setattr(disk, "sync_folder", sync_folder)
            size = store.folders.hour(FIRST).log_size
            work = compaction_of(store)
            with suppress(NoDescriptorError):
                run(work) if told else [step() for step in work if callable(step)]
            work.close()
        removed = GONE if store.folders.hour(FIRST).log_size < size else NONE
        if seed % 2:
            add(store, model, 120)
            run(store.flusher.sync())
        else:
            run(islice(compaction_of(store), 2 + seed % 4))
        after = disk.restart(survival, seed)
        again = HourStore(after, FOLDER)
        again.recover({FIRST: HourCounts(rows=len(model.refs))}, 1 << 62)
        check(again, model, removed)
