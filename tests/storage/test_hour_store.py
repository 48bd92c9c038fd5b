"""Hours against a plain-Python model: every row is found, wherever it is, as long as it lives.

Purpose: numbering, tails, flushes, chains, second index, states and the cut at a checkpoint.
Method: Hypothesis draws frames that fall into one hour, a few or many, flushes at random points
with random bounds in between, and compares every look-up with lists and dicts.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.batch import MessageBatch, TextColumn
from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.hour_store import HourCounts, HourStore, Work
from delaylog.storage.layout import (
    HOUR_MS,
    INDEX_ENTRY,
    STATE_ENTRY,
    MessageState,
    hour_name,
    hour_of_name,
    make_ref,
)
from delaylog.storage.payloads import SendDecision
from delaylog.storage.rows import place_rows
from delaylog.storage.second_index import SecondIndex
from delaylog.storage.state_column import PAGE_ROWS
from tests.storage.fake_disk import DiskCrashed, FakeDisk, FakeFile

FIRST = 472_222
FOLDER = "data/hours"
TAG = 5


def run(work: Work) -> None:
    """Background work to its end, jobs on the spot."""
    for step in work:
        if callable(step):
            step()


def open_store(disk: FakeDisk, counts: dict[int, HourCounts] | None = None) -> HourStore:
    disk.mkdir("data")
    store = HourStore(disk, FOLDER)
    store.recover(counts or {}, 1 << 62)
    return store


@dataclass
class Model:
    """What the rows are: per hour a list of (due, record), and states by ref."""

    hours: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    states: dict[int, tuple[int, int]] = field(default_factory=dict)
    refs: list[int] = field(default_factory=list)
    position: int = 0
    frames: list[tuple[int, Any, int, int]] = field(default_factory=list)

    def add(self, store: HourStore, due: list[int], bodies: list[bytes], floor: int) -> None:
        """One frame into the store and into the model."""
        n = len(due)
        sizes = np.array([len(b) for b in bodies], "<u4")
        ids = [b"" if k % 3 else b"i%d" % k for k in range(n)]
        batch = MessageBatch(
            n,
            deliver_at_ms=np.array(due, "<i8"),
            body=TextColumn(sizes, b"".join(bodies)),
        )
        if n > 2 and n % 2:
            batch.id = TextColumn(np.array([len(i) for i in ids], "<u2"), b"".join(ids))
        else:
            ids = [b""] * n
        decision = SendDecision(1, TAG, floor, -1, 3)
        end = self.position + 64 + sum(map(len, bodies))
        self.frames.append((self.position, batch, floor, end))
        placed = place_rows(batch, decision, FIRST * HOUR_MS - 1, self.position)
        refs = store.number(placed, end)
        order = range(n) if placed.order is None else placed.order.tolist()
        expected = []
        for row in order:
            hour = max(due[row] // HOUR_MS, floor)
            rows = self.hours.setdefault(hour, [])
            rows.append((due[row], ids[row] + bodies[row]))
            expected.append(make_ref(hour, TAG, len(rows)))
        assert refs.tolist() == expected
        self.refs += expected
        self.position = end

    def row(self, ref: int) -> tuple[int, bytes]:
        return self.hours[ref >> 43][(ref & 0xFFFFFFFF) - 1]


def replay(store: HourStore, model: Model, first: int) -> None:
    """The frames from position `first` on, once more."""
    for position, batch, floor, end in model.frames:
        if position >= first:
            decision = SendDecision(1, TAG, floor, -1, 3)
            store.number(place_rows(batch, decision, FIRST * HOUR_MS - 1, position), end)


def check_look_ups(store: HourStore, model: Model, wanted: list[int]) -> None:
    refs = np.array(wanted, np.int64)
    rows = store.rows(refs)
    expected = [model.row(ref) for ref in wanted]
    assert rows["deliver_at"].tolist() == [due for due, _ in expected]
    assert rows["global_index"].tolist() == [ref & 0xFFFFFFFF for ref in wanted]
    assert rows["origin"].tolist() == wanted
    assert store.check_tags(refs, rows).all()
    assert store.known(refs).all()
    assert store.records(refs, rows) == b"".join(record for _, record in expected)
    entries = store.get_states(refs)
    found = list(zip(entries["state"].tolist(), entries["lease"].tolist(), strict=True))
    assert found == [model.states.get(ref, (0, 0)) for ref in wanted]


def check_chains(store: HourStore, model: Model) -> None:
    """Each second's chain: exactly its rows, newest first, numbered in log order."""
    for hour, expected in model.hours.items():
        folder = store.hour(hour)
        assert folder.row_count == len(expected) == store.counts[hour].rows
        seconds: dict[int, list[int]] = {}
        for index, (due, _) in enumerate(expected, 1):
            seconds.setdefault(max(due - hour * HOUR_MS, 0) // 1000, []).append(index)
        rows = np.concatenate(list(folder.scan_rows()))
        for second, indexes in seconds.items():
            walked = [i for part in folder.walk_second(second, 1 << 32) for i in part]
            assert walked == indexes[::-1]
            assert rows["local_index"][np.array(indexes) - 1].tolist() == list(
                range(1, len(indexes) + 1)
            )
            bound = indexes[len(indexes) // 2]
            walked = [i for part in folder.walk_second(second, bound) for i in part]
            assert walked == [i for i in indexes[::-1] if i <= bound]
            parts = list(folder.walk_second(second, 1 << 32, before=bound, slice_rows=2))
            assert [i for part in parts for i in part] == [i for i in indexes[::-1] if i < bound]
            assert all(len(part) <= 2 for part in parts)
        kept = folder.seconds()
        again = folder.rebuild_seconds()
        assert (kept.newest == again.newest).all()
        assert (kept.count == again.count).all()
        assert kept.covers == again.covers == len(expected)
        assert set(np.flatnonzero(kept.count).tolist()) == set(seconds)
        assert [i for part in folder.walk_second(3_599, 0) for i in part] == []
        for _ in folder.verify():
            pass
        assert int(folder.extents()["count"].sum()) == len(expected)


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
    entries = np.zeros(len(wanted), STATE_ENTRY)
    entries["state"] = MessageState.LEASED
    entries["lease"] = len(model.refs)
    store.put_states(np.array(wanted, np.int64), entries)
    model.states.update((ref, (int(MessageState.LEASED), len(model.refs))) for ref in wanted)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_against_a_model(data: st.DataObject) -> None:
    """Frames, states, flushes in any order; look-ups agree at every step, chains at the end."""
    disk = FakeDisk()
    store, model = open_store(disk), Model()
    store.set_near([FIRST, FIRST + 1])
    for _ in range(data.draw(st.integers(1, 10), label="steps")):
        step = data.draw(st.sampled_from("fffffsluhp"), label="step")
        if step == "f" or not model.refs:
            model.add(store, *data.draw(frame(), label="frame"))
        elif step == "s":
            put_some_states(store, model, data)
        elif step == "l":
            wanted = data.draw(st.lists(st.sampled_from(model.refs), max_size=30))
            check_look_ups(store, model, wanted)
        elif step == "u":
            run(store.flush(upto=data.draw(st.integers(0, model.position))))
        elif step == "h":
            hour = data.draw(st.sampled_from(sorted(model.hours)))
            run(store.flush(upto=data.draw(st.integers(0, model.position)), hour=hour))
        else:
            run(store.flush_states(pages_max=data.draw(st.integers(1, 3))))
            assert store.dirty_state_bytes == 0
    check_look_ups(store, model, model.refs[::-1])
    run(store.flush(upto=model.position))
    assert store.pile.empty
    assert store.pile.size_bytes == 0
    check_chains(store, model)
    check_look_ups(store, model, data.draw(st.permutations(model.refs)))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_flush_in_pieces_while_frames_come(data: st.DataObject) -> None:
    """Frames and look-ups between the slices of a running flush change nothing about it."""
    disk = FakeDisk()
    store, model = open_store(disk), Model()
    for _ in range(data.draw(st.integers(1, 4))):
        model.add(store, *data.draw(frame()))
    for step in store.flush(upto=model.position):
        if data.draw(st.booleans(), label="look"):
            check_look_ups(store, model, model.refs)
        if data.draw(st.booleans(), label="add"):
            model.add(store, *data.draw(frame()))
        if callable(step):
            step()
        check_look_ups(store, model, model.refs)
    run(store.flush(upto=model.position))
    check_chains(store, model)
    check_look_ups(store, model, model.refs)


def files_of(disk: FakeDisk, hours: list[int], store: HourStore) -> dict[str, bytes]:
    out = {}
    for hour in hours:
        for name in ("delay.log", "delay.index"):
            path = f"{store.hour(hour).folder}/{name}"
            out[path] = disk.content(path)
    return out


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_cut_and_replay(data: st.DataObject) -> None:
    """Cut to a checkpoint's counts, add the later frames again: byte-identical files."""
    disk = FakeDisk()
    store, model = open_store(disk), Model()
    for _ in range(data.draw(st.integers(1, 4))):
        model.add(store, *data.draw(frame()))
    run(store.flush(upto=model.position))
    checkpoint = model.position
    counts = {hour: HourCounts(c.rows, c.living) for hour, c in store.counts.items()}
    put_some_states(store, model, data)
    run(store.flush_states())
    run(store.sync())
    for _ in range(data.draw(st.integers(0, 4))):
        model.add(store, *data.draw(frame()))
        if data.draw(st.booleans(), label="flush"):
            run(store.flush(upto=model.position))
        if data.draw(st.booleans(), label="sync"):
            run(store.sync())
    late = [ref for ref in model.refs if (ref & 0xFFFFFFFF) > counts_of(counts, ref)]
    if late:
        entries = np.full(len(late), 255, "u1").repeat(32).view(STATE_ENTRY)
        store.put_states(np.array(late, np.int64), entries)
        if data.draw(st.booleans(), label="flush states"):
            run(store.flush_states())
    run(store.flush(upto=model.position))
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
    run(again.flush(upto=model.position))
    check_chains(again, model)
    assert files_of(disk, sorted(model.hours), again) == before
    check_look_ups(again, model, model.refs)


def counts_of(counts: dict[int, HourCounts], ref: int) -> int:
    found = counts.get(ref >> 43)
    return found.rows if found else 0


def disk_name(hour: int) -> str:
    assert hour_of_name(hour_name(hour)) == hour
    return hour_name(hour)


def small_store() -> tuple[FakeDisk, HourStore, Model]:
    """Two flushed frames in two hours."""
    disk = FakeDisk()
    store, model = open_store(disk), Model()
    for number in range(2):
        due = [(FIRST + k % 2) * HOUR_MS + k * 1_000 for k in range(10)]
        model.add(store, due, [b"body %d" % (k + number) for k in range(10)], FIRST)
        run(store.flush(upto=model.position))
    return disk, store, model


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
                run(store.flush(upto=model.position))
            check_look_ups(store, model, model.refs)
            run(store.flush(upto=model.position))
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
        store.boundary = model.position
        model.add(store, due, [b"behind"] * 12, FIRST)
        run(store.flush(upto=model.position))
        run(store.flush(upto=store.boundary))
        run(store.sync())
        store.close()
        again = open_store(disk, counts)
        replay(again, model, model.frames[1][0])
        run(again.flush(upto=model.position))
        check_chains(again, model)


def test_state_flushes_do_not_overlap() -> None:
    """A second state flush waits for the first: pages in flight are neither passed over by a
    checkpoint's sync nor given back while only memory has them."""
    _, store, model = small_store()
    refs = np.array(model.refs[:1], np.int64)
    entries = np.zeros(1, STATE_ENTRY)
    entries["state"] = MessageState.ACKED
    store.put_states(refs, entries)
    first = store.flush_states()
    job = next(first)
    assert callable(job), "the page is collected and waits to be written"
    second = store.flush_states()
    for _ in range(3):
        step = next(second, "end")
        assert step != "end", "it may not end while the first has something in flight"
        assert not callable(step)
    assert store.get_states(refs)["state"].tolist() == [MessageState.ACKED]
    job()
    run(first)
    run(second)
    assert store.get_states(refs)["state"].tolist() == [MessageState.ACKED]


def test_a_state_flush_ends_while_states_change() -> None:
    """It writes what was dirty when a column had its turn, however fast pages change again."""
    _, store, model = small_store()
    refs = np.array(model.refs[:1], np.int64)
    entries = np.zeros(1, STATE_ENTRY)
    entries["state"] = MessageState.ACKED
    store.put_states(refs, entries)
    writes = 0
    for step in store.flush_states(pages_max=1):
        if callable(step):
            step()
            writes += 1
            assert writes < 5, "a pass over one dirty page has an end"
            entries["lease"] += 1
            store.put_states(refs, entries)
    assert writes == 1
    assert store.dirty_state_bytes == 4096, "what changed meanwhile waits for the next one"
    assert store.get_states(refs)["lease"].tolist() == [1]


def test_a_state_flush_ends_while_an_hour_grows() -> None:
    """Rows are settled as fast as their pages are written, each time on a page further on."""
    _, store, model = small_store()
    entries = np.zeros(1, STATE_ENTRY)
    entries["state"] = MessageState.ACKED
    ref = np.array(model.refs[:1], np.int64)
    store.put_states(ref, entries)
    writes = 0
    for step in store.flush_states(pages_max=1):
        if callable(step):
            step()
            writes += 1
            assert writes < 5, "a pass has an end"
            # Another array: where refs lie is remembered by identity, and they never change.
            ref = ref + PAGE_ROWS
            store.put_states(ref, entries)
    assert writes == 1
    assert store.dirty_state_bytes == 4096


def test_state_file_survives() -> None:
    """A state file that appears in an hour whose rows were synced long ago is durable too."""
    disk, store, model = small_store()
    disk.sync_folder("")
    disk.sync_folder("data")
    run(store.sync())
    refs = np.array(model.refs, np.int64)
    entries = np.zeros(len(refs), STATE_ENTRY)
    entries["state"] = MessageState.ACKED
    store.put_states(refs, entries)
    run(store.flush_states())
    run(store.sync())
    again = open_store(disk.restart("nothing"), store.counts)
    assert (again.get_states(refs)["state"] == MessageState.ACKED).all()


REGIONS = ("delay.log", "delay.index", "extents")


@pytest.mark.parametrize("name", REGIONS)
def test_rot_in_an_hour(name: str) -> None:
    """verify() finds any flipped bit of rows, bodies and extents, and names the file."""
    disk, store, _ = small_store()
    folder = store.hour(FIRST)
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
    folder = store.hour(FIRST)
    path = f"{folder.folder}/delay.index"
    disk.flip(path, (112 * 3 + 16) * 8)
    with pytest.raises(CorruptionError):
        store.rows(np.array(model.refs, np.int64))
    disk.flip(path, (112 * 3 + 16) * 8)
    store.rows(np.array(model.refs, np.int64))
    second = max(s for s in range(20) if folder.seconds().count[s] > 1)
    newest = int(folder.seconds().newest[second])
    disk.flip(path, (112 * (newest - 1) + 20) * 8 + 6)
    with pytest.raises(CorruptionError):
        list(folder.walk_second(second, 99))


@pytest.mark.parametrize("name", REGIONS)
def test_missing_bytes_below_a_checkpoint(name: str) -> None:
    """Recovery refuses an hour that is shorter than its checkpoint says."""
    disk, store, _ = small_store()
    counts = dict(store.counts)
    path = f"{store.hour(FIRST).folder}/{name}"
    store.close()
    disk.open(path).truncate(len(disk.content(path)) - 1)
    with pytest.raises(CorruptionError):
        open_store(disk, counts)


def test_damaged_second_index_is_rebuilt() -> None:
    """Any flipped bit of second.index, or its loss: the same heads as before."""
    disk, store, model = small_store()
    run(store.sync())
    counts = dict(store.counts)
    path = f"{store.hour(FIRST).folder}/second.index"
    store.close()
    for bit in (0, 40, 70, 130, 200, 250, 32 * 8, 9_000, 57_631 * 8):
        disk.flip(path, bit)
        check_chains(open_store(disk, counts), model)
        disk.flip(path, bit)
    disk.unlink(path)
    check_chains(open_store(disk, counts), model)


def test_unknown_folders_go_and_ended_hours_are_removed() -> None:
    disk, store, model = small_store()
    assert store.hour(FIRST).open_files
    store.remove(FIRST)
    assert disk.listdir(FOLDER) == [disk_name(FIRST + 1)]
    assert not store.known(np.array([model.refs[0]], np.int64)).any()
    store.close()
    open_store(disk, {})
    assert disk.listdir(FOLDER) == []


def test_an_hour_removed_behind_a_checkpoint() -> None:
    """A checkpoint that still counts an ended hour can be recovered, wherever removal was cut."""
    disk, store, model = small_store()
    run(store.sync())
    for hour in store.counts:
        store.counts[hour].living = 0
    before = dict(store.counts)
    start = disk.count
    store.remove(FIRST)
    steps = disk.count - start
    for at in range(1, steps + 2):
        disk, store, model = small_store()
        disk.sync_folder("")
        disk.sync_folder("data")
        run(store.sync())
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
    run(store.sync())
    counts = dict(store.counts)
    counts[FIRST].living = 0
    path = f"{store.hour(FIRST).folder}/extents"
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


def test_files_that_another_thread_reads_stay_open() -> None:
    """The loop closes files of hours beyond a bound while a job checks one of them."""
    _, store, _ = small_store()
    run(store.sync())
    store._open_hours_max = 0
    read = FakeFile.pread
    hours = sorted(store.counts)

    def pread(file: FakeFile, size: int, offset: int) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeFile, "pread", read)
            run(store.sync())
        return read(file, size, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeFile, "pread", pread)
        for hour in hours:
            folder = store.hour(hour)
            for _ in folder.verify():
                pass
            folder.check_records(0)
            folder.drop_seconds()
            folder.load_seconds()
    run(store.sync())
    assert all(store.hour(hour).open_files == 0 for hour in hours)


def test_a_lost_hour_with_living_rows_is_an_error() -> None:
    disk, store, _ = small_store()
    counts = dict(store.counts)
    folder = store.hour(FIRST).folder
    store.close()
    disk.remove_tree(folder)
    with pytest.raises(CorruptionError):
        open_store(disk, counts)


def test_large_hours_read_through_maps() -> None:
    """Scattered rows of a near hour come through mapped pieces and are the same bytes."""
    disk = FakeDisk()
    store, model = open_store(disk), Model()
    n = 40_000
    for _ in range(4):
        due = (FIRST * HOUR_MS + np.arange(n) % 3_600_000).tolist()
        model.add(store, due, [b"%0200d" % k for k in range(n)], FIRST)
        run(store.flush(upto=model.position))
    store.set_near([FIRST])
    random = np.random.default_rng(1)
    wanted = random.choice(np.array(model.refs), 300, replace=False)
    check_look_ups(store, model, wanted.tolist())
    store.forget_pages()
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
    run(store.flush(upto=model.position))
    work = store.sync()
    write = next(work)
    assert callable(write)
    model.add(store, [due, due + 1_000], [b"b"] * 2, FIRST)
    run(store.flush(upto=model.position))
    write()
    path = f"{FOLDER}/{hour_name(FIRST)}/second.index"
    kept = SecondIndex.decode(disk.content(path))
    assert kept is not None
    assert (kept.covers, kept.count.sum(), kept.newest.max()) == (3, 3, 3)
    run(work)
    run(store.sync())
    kept = SecondIndex.decode(disk.content(path))
    assert kept is not None
    assert (kept.covers, kept.count.sum(), kept.newest.max()) == (5, 5, 5)
