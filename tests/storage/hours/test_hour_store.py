"""Hours against a plain-Python model: every row is found, wherever it is, as long as it lives.

Purpose: numbering, tails, flushes, chains, second index, states and the cut at a checkpoint.
Method: Hypothesis draws frames that fall into one hour, a few or many, flushes at random points
with random bounds in between, and compares every look-up with lists and dicts.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import File
from delaylog.storage.hours import delay_hour
from delaylog.storage.hours.hour_store import HourStore, put_few
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.hours.open_hours import COLUMNS_KEPT_MAX
from delaylog.storage.hours.second_index import SecondIndex
from delaylog.storage.hours.state_column import COLUMN_BYTES, PAGE_ROWS, PAGE_SIZE
from delaylog.storage.hours.state_seal import sealed
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_ENTRY,
    STATE_ENTRY,
    MessageState,
    RowArray,
    hour_name,
)
from tests.effort import tries
from tests.storage.fake_disk import FakeDisk, FakeFile
from tests.storage.hours.hour_model import (
    FIRST,
    FOLDER,
    Model,
    check_chains,
    check_look_ups,
    disk_name,
    entries_of,
    open_store,
    replay,
    run,
    small_store,
)

HOURS = range(FIRST, FIRST + 24)
FEW = st.tuples(st.just(1), st.integers(1, 12))
SOME = st.tuples(st.integers(2, 4), st.integers(1, 12))
MANY = st.tuples(st.integers(5, 24), st.integers(6, 40))


@st.composite
def frame(draw: st.DrawFn) -> tuple[list[int], list[bytes], int]:
    """(due times, bodies, hour floor) of one frame."""
    hours, n = draw(st.one_of(FEW, SOME, MANY))
    random = draw(st.randoms(use_true_random=False))
    spread = draw(st.sampled_from([1, 5, 3_600]))
    due = [
        (FIRST + random.randrange(hours)) * HOUR_MS
        + random.randrange(spread) * 1000
        + random.randrange(1000)
        for _ in range(n)
    ]
    size = draw(st.sampled_from([0, 4, -1, -1]))
    bodies = [random.randbytes(random.randrange(9) if size < 0 else size) for _ in range(n)]
    return due, bodies, FIRST + draw(st.sampled_from([0, 0, 0, 2]))


def put_some_states(store: HourStore, model: Model, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.sampled_from(model.refs), unique=True, max_size=8))
    entries = entries_of(MessageState.LEASED, len(model.refs), len(wanted))
    near = all(ref >> HOUR_SHIFT in store.counts.near for ref in wanted)
    if not near or data.draw(st.booleans()):
        store.put_states(np.array(wanted, np.int64), entries)
    else:
        by_hour = put_few(store, wanted, [seal.tobytes() for seal in sealed(entries)], 1)
        assert by_hour == Counter(ref >> HOUR_SHIFT for ref in wanted)
    model.states.update((ref, (int(MessageState.LEASED), len(model.refs))) for ref in wanted)


def play(step: str, store: HourStore, model: Model, data: st.DataObject) -> bool:
    """Do a step that every store knows; returns whether it was one."""
    if step == "f" or not model.refs:
        model.add(store, *data.draw(frame(), label="frame"))
    elif step == "s":
        put_some_states(store, model, data)
    elif step == "l":
        wanted = data.draw(st.lists(st.sampled_from(model.refs), max_size=30))
        check_look_ups(store, model, wanted)
    elif step == "u":
        run(store.flusher.flush(upto=data.draw(st.integers(0, model.position))))
    elif step == "p":
        run(store.flusher.flush_states(pages_max=data.draw(st.integers(1, 3))))
        assert store.flusher.dirty_state_bytes == 0
    else:
        return False
    return True


def add_and_flush(store: HourStore, model: Model, data: st.DataObject) -> None:
    """A frame, which may be flushed at once."""
    model.add(store, *data.draw(frame()))
    if data.draw(st.booleans(), label="flush"):
        run(store.flusher.flush(upto=model.position))


@given(st.data())
@settings(max_examples=tries(60), deadline=None)
def test_against_a_model(data: st.DataObject) -> None:
    """Frames, states, flushes in any order; look-ups agree at every step, chains at the end."""
    store, model = open_store(FakeDisk()), Model()
    store.set_near([FIRST, FIRST + 1])
    for _ in range(data.draw(st.integers(1, 10), label="steps")):
        step = data.draw(st.sampled_from("fffffsluhp"), label="step")
        if not play(step, store, model, data):
            hour = data.draw(st.sampled_from(sorted(model.hours)))
            run(store.flusher.flush(upto=data.draw(st.integers(0, model.position)), hour=hour))
        columns = [column for hour in HOURS for column in store.folders.hour(hour).state_columns]
        pages = [column.dirty_pages for column in columns if column.dirty_pages]
        assert store.flusher.dirty_state_bytes == sum(pages) * PAGE_SIZE + len(pages) * COLUMN_BYTES
    check_look_ups(store, model, model.refs[::-1])
    run(store.flusher.flush(upto=model.position))
    assert store.pile.empty
    assert store.pile.size_bytes == 0
    check_chains(store, model)
    check_look_ups(store, model, data.draw(st.permutations(model.refs)))


def files_of(disk: FakeDisk, hours: list[int], store: HourStore) -> dict[str, bytes]:
    out = {}
    for hour in hours:
        for name in ("delay.log", "delay.index"):
            path = f"{store.folders.hour(hour).folder}/{name}"
            out[path] = disk.content(path)
    return out


@given(st.data())
@settings(max_examples=tries(40), deadline=None)
def test_cut_and_replay(data: st.DataObject) -> None:
    """Cut to a checkpoint's counts, add the later frames again: byte-identical files."""
    disk = FakeDisk()
    store, model = open_store(disk), Model()
    for _ in range(data.draw(st.integers(1, 4))):
        model.add(store, *data.draw(frame()))
    run(store.flusher.flush(upto=model.position))
    checkpoint = model.position
    counts = {hour: HourCounts(c.rows, c.living) for hour, c in store.counts.items()}
    put_some_states(store, model, data)
    run(store.flusher.flush_states())
    run(store.flusher.sync())
    for _ in range(data.draw(st.integers(0, 4))):
        add_and_flush(store, model, data)
        if data.draw(st.booleans(), label="sync"):
            run(store.flusher.sync())
    late = [ref for ref in model.refs if (ref & 0xFFFFFFFF) > counts_of(counts, ref)]
    if late:
        entries = np.full(len(late), 255, "u1").repeat(32).view(STATE_ENTRY)
        store.put_states(np.array(late, np.int64), entries)
        if data.draw(st.booleans(), label="flush states"):
            run(store.flusher.flush_states())
    run(store.flusher.flush(upto=model.position))
    before = files_of(disk, sorted(model.hours), store)
    store.close()
    if data.draw(st.booleans(), label="drop second indexes"):
        for hour in model.hours:
            path = f"{FOLDER}/{disk_name(hour)}/second.index"
            if disk.exists(path):
                disk.unlink(path)
    again = open_store(disk, counts)
    assert sum(again.flushed(hour) for hour in model.hours) == sum(c.rows for c in counts.values())
    replay(again, model, checkpoint)
    check_look_ups(again, model, model.refs)
    run(again.flusher.flush(upto=model.position))
    check_chains(again, model)
    assert files_of(disk, sorted(model.hours), again) == before
    check_look_ups(again, model, model.refs)


def counts_of(counts: dict[int, HourCounts], ref: int) -> int:
    found = counts.get(ref >> 43)
    return found.rows if found else 0


def test_full_disk_while_flushing() -> None:
    """ENOSPC in any write of a flush leaves every row readable; the next flush completes it."""
    for many in (1, 9):
        for fault in range(1, 40):
            disk = FakeDisk(fault)
            store, model = open_store(disk), Model()
            for number in range(2):
                due = [(FIRST + k % many) * HOUR_MS + k * 700 for k in range(12)]
                model.add(store, due, [b"b%d" % (k * number) for k in range(12)], FIRST)
            disk.full_at = frozenset([disk.count + fault])
            with contextlib.suppress(DiskFullError):
                run(store.flusher.flush(upto=model.position))
            check_look_ups(store, model, model.refs)
            run(store.flusher.flush(upto=model.position))
            check_look_ups(store, model, model.refs)
            check_chains(store, model)


def test_flush_during_a_checkpoint_respects_its_boundary() -> None:
    """A flush that runs on beyond a coming checkpoint's position never straddles it.

    Else the extents would not end at the checkpoint's counts, and recovery would refuse them.
    """
    for many in (1, 9):
        disk = FakeDisk()
        store, model = open_store(disk), Model()
        due = [(FIRST + k % many) * HOUR_MS + k * 700 for k in range(12)]
        model.add(store, due, [b"before"] * 12, FIRST)
        counts = {hour: HourCounts(c.rows) for hour, c in store.counts.items()}
        store.flusher.boundary = model.position
        model.add(store, due, [b"behind"] * 12, FIRST)
        run(store.flusher.flush(upto=model.position))
        run(store.flusher.flush(upto=store.flusher.boundary))
        run(store.flusher.sync())
        store.close()
        again = open_store(disk, counts)
        replay(again, model, model.frames[1][0])
        run(again.flusher.flush(upto=model.position))
        check_chains(again, model)


def test_state_flushes_do_not_overlap() -> None:
    """A second state flush waits for the first: pages in flight are neither passed over by a
    checkpoint's sync nor given back while only memory has them."""
    _, store, model = small_store()
    refs = np.array(model.refs[:1], np.int64)
    entries = entries_of(MessageState.ACKED)
    store.put_states(refs, entries)
    first = store.flusher.flush_states()
    job = next(first)
    assert callable(job), "the page is collected and waits to be written"
    second = store.flusher.flush_states()
    for _ in range(3):
        step = next(second, "end")
        assert step != "end", "it may not end while the first has something in flight"
        assert not callable(step)
    assert store.get_states(refs)["state"].tolist() == [MessageState.ACKED]
    job()
    run(first)
    run(second)
    assert store.get_states(refs)["state"].tolist() == [MessageState.ACKED]


def test_many_state_pages_are_copied_out_in_slices() -> None:
    """Others have their turn between; what a flush copied that is given up is still dirty."""
    _, store, model = small_store()
    count = 600 * 128
    model.add(store, [FIRST * HOUR_MS] * count, [b""] * count, FIRST)
    refs = np.array(model.refs[-count:], np.int64)
    entries = entries_of(MessageState.ACKED)
    store.put_states(refs, entries)
    dirty = store.flusher.dirty_state_bytes
    assert dirty >= 600 * 4096
    given_up = store.flusher.flush_states()
    assert next(given_up) is None
    given_up.close()
    assert store.flusher.dirty_state_bytes == dirty
    flush = store.flusher.flush_states()
    slices = 0
    while (step := next(flush)) is None:
        slices += 1
    assert slices == 2
    assert callable(step)
    step()
    run(flush)
    assert store.flusher.dirty_state_bytes == 0
    assert store.get_states(refs)["state"].tolist() == [MessageState.ACKED] * count


def test_states_of_many_hours_are_let_go_once_they_are_written() -> None:
    """A year of acks leaves a column an hour and group: they may not pile up in memory."""
    store, model = open_store(FakeDisk(), near_hours=2 * COLUMNS_KEPT_MAX), Model()
    hours = range(FIRST, FIRST + COLUMNS_KEPT_MAX)
    model.add(store, [hour * HOUR_MS for hour in hours], [b""] * len(hours), FIRST)
    entries = entries_of(MessageState.ACKED, count=len(hours))
    refs = np.array(model.refs, np.int64)
    for group in (1, 2, 3):
        store.put_states(refs, entries, group)
    run(store.flusher.flush_states())
    run(store.flusher.sync())
    held = [column for hour in hours for column in store.folders.hour(hour).state_columns]
    assert len(held) <= COLUMNS_KEPT_MAX
    assert store.flusher.dirty_state_bytes == 0
    for group in (1, 2, 3):
        assert store.get_states(refs, group)["state"].tolist() == [MessageState.ACKED] * len(refs)


def test_a_state_flush_ends_while_states_change() -> None:
    """It writes what was dirty when a column had its turn, however fast pages change again."""
    _, store, model = small_store()
    refs = np.array(model.refs[:1], np.int64)
    entries = entries_of(MessageState.ACKED)
    store.put_states(refs, entries)
    writes = 0
    for step in store.flusher.flush_states(pages_max=1):
        if callable(step):
            step()
            writes += 1
            assert writes < 5, "a pass over one dirty page has an end"
            entries["lease"] += 1
            store.put_states(refs, entries)
    assert writes == 1
    assert store.flusher.dirty_state_bytes == PAGE_SIZE + COLUMN_BYTES, (
        "what changed meanwhile waits for the next one"
    )
    assert store.get_states(refs)["lease"].tolist() == [1]


def test_a_state_flush_ends_while_an_hour_grows() -> None:
    """Rows are settled as fast as their pages are written, each time on a page further on."""
    _, store, model = small_store()
    entries = entries_of(MessageState.ACKED)
    ref = np.array(model.refs[:1], np.int64)
    store.put_states(ref, entries)
    writes = 0
    for step in store.flusher.flush_states(pages_max=1):
        if callable(step):
            step()
            writes += 1
            assert writes < 5, "a pass has an end"
            # Another array: where refs lie is remembered by identity, and they never change.
            ref = ref + PAGE_ROWS
            store.put_states(ref, entries)
    assert writes == 1
    assert store.flusher.dirty_state_bytes == PAGE_SIZE + COLUMN_BYTES


def test_state_file_survives() -> None:
    """A state file that appears in an hour whose rows were synced long ago is durable too."""
    disk, store, model = small_store()
    disk.sync_folder("")
    disk.sync_folder("data")
    run(store.flusher.sync())
    refs = np.array(model.refs, np.int64)
    entries = entries_of(MessageState.ACKED, count=len(refs))
    store.put_states(refs, entries)
    run(store.flusher.flush_states())
    run(store.flusher.sync())
    again = open_store(disk.restart("nothing"), store.counts.near)
    assert (again.get_states(refs)["state"] == MessageState.ACKED).all()


def test_states_stored_one_by_one_are_read_and_written_as_others() -> None:
    """The states of few messages take a way of their own into the same pages."""
    disk, store, model = small_store()
    run(store.flusher.sync())
    few = model.refs[1:6:2]
    entries = entries_of(MessageState.ACKED, count=len(few))
    put_few(store, few, [seal.tobytes() for seal in sealed(entries)], 1)
    expected = [MessageState.ACKED if ref in few else 0 for ref in model.refs]
    refs = np.array(model.refs, np.int64)
    assert store.get_states(refs)["state"].tolist() == expected
    run(store.flusher.flush_states())
    run(store.flusher.sync())
    disk.sync_all()
    again = open_store(disk.restart("nothing"), store.counts.near)
    assert again.get_states(refs)["state"].tolist() == expected


def test_files_that_another_thread_reads_stay_open() -> None:
    """The loop closes files of hours beyond a bound while a job checks one of them."""
    _, store, _ = small_store()
    run(store.flusher.sync())
    store.folders.opened.hours_max = 0
    read = FakeFile.pread
    hours = sorted(store.counts)

    def pread(file: FakeFile, size: int, offset: int) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeFile, "pread", read)
            run(store.flusher.sync())
        return read(file, size, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeFile, "pread", pread)
        for hour in hours:
            folder = store.folders.hour(hour)
            for _ in folder.verify():
                pass
            folder.check_records(0)
            folder.heads.drop()
            folder.heads.load()
    run(store.flusher.sync())
    assert all(store.folders.hour(hour).files.count == 0 for hour in hours)


def test_large_hours_read_through_maps() -> None:
    """Scattered rows of a near hour come through mapped pieces and are the same bytes."""
    store, model = open_store(FakeDisk()), Model()
    n = 40_000
    for _ in range(4):
        due = (FIRST * HOUR_MS + np.arange(n) % 3_600_000).tolist()
        model.add(store, due, [b"%0200d" % k for k in range(n)], FIRST)
        run(store.flusher.flush(upto=model.position))
    store.set_near([FIRST])
    random = np.random.default_rng(1)
    wanted = random.choice(np.array(model.refs), 300, replace=False)
    check_look_ups(store, model, wanted.tolist())
    store.folders.forget_pages()
    check_look_ups(store, model, np.sort(wanted).tolist())
    store.set_near([])
    check_look_ups(store, model, wanted.tolist())
    assert INDEX_ENTRY.itemsize == 112


def test_a_second_index_is_of_one_moment() -> None:
    """Rows that are taken over while a thread writes it are in all of it or in none."""
    disk, model = FakeDisk(), Model()
    store = open_store(disk)
    due = FIRST * HOUR_MS + 5_000
    model.add(store, [due] * 3, [b"a"] * 3, FIRST)
    run(store.flusher.flush(upto=model.position))
    work = store.flusher.sync()
    write = next(work)
    assert callable(write)
    model.add(store, [due, due + 1_000], [b"b"] * 2, FIRST)
    run(store.flusher.flush(upto=model.position))
    write()
    path = f"{FOLDER}/{hour_name(FIRST)}/second.index"
    kept = SecondIndex.decode(disk.content(path))
    assert kept is not None
    assert (kept.covers, kept.count.sum(), kept.newest.max()) == (3, 3, 3)
    run(work)
    run(store.flusher.sync())
    kept = SecondIndex.decode(disk.content(path))
    assert kept is not None
    assert (kept.covers, kept.count.sum(), kept.newest.max()) == (5, 5, 5)


def test_a_flush_during_the_first_step_of_a_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """That step runs on another thread: the loop may show the rows of a flush meanwhile."""
    store, model = open_store(FakeDisk()), Model()
    for _ in range(3):
        model.add(store, [FIRST * HOUR_MS] * 5, [b"x"] * 5, 0)
        run(store.flusher.flush(upto=model.position))
    model.add(store, [FIRST * HOUR_MS] * 5, [b"x"] * 5, 0)
    flush = store.flusher.flush(upto=model.position)
    for step in islice(flush, 1):
        assert callable(step)
        step()
    real = delay_hour.read_extents

    def read_extents(file: File, count: int, path: str) -> RowArray:
        found = real(file, count, path)
        run(flush)
        return found

    monkeypatch.setattr(delay_hour, "read_extents", read_extents)
    folder = store.folders.hour(FIRST)
    assert list(folder.verify()) == [None]
    assert folder.row_count == 20
    check_look_ups(store, model, model.refs)
