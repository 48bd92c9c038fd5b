"""Far hours against the plain model: rows keep their numbers and are found wherever they are.

Purpose: the far tier, its merges and splits, and what a checkpoint says about it.
Method: the frames of test_hour_store, of which only the first hours are near; flushes, merges and
splits come at random points, every look-up is compared with lists and dicts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.checkpoint import Checkpoint
from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.hours import tails
from delaylog.storage.hours.far import far_border, far_tier, run_stack
from delaylog.storage.hours.far.far_tier import RunNumbers
from delaylog.storage.hours.far.sorted_run import SortedRun
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.layout import HOUR_MS, MessageState
from delaylog.storage.work import Work
from tests.effort import tries
from tests.storage.fake_disk import FakeDisk
from tests.storage.hours.hour_model import (
    FIRST,
    FOLDER,
    Model,
    check_chains,
    check_look_ups,
    entries_of,
    noted_reads,
    open_store,
    replay,
    run,
)
from tests.storage.hours.test_hour_store import (
    add_and_flush,
    files_of,
    frame,
    play,
    put_some_states,
)

LAST = FIRST + 24


@pytest.fixture(autouse=True)
def small_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_stack, "FAN_IN", 2)
    monkeypatch.setattr(run_stack, "SLICE_ROWS", 7)
    monkeypatch.setattr(run_stack, "RUN_ROWS_MAX", 16)
    monkeypatch.setattr(tails, "_SAMPLED", 3)
    monkeypatch.setattr(far_tier, "FLUSHED_RUN_BYTES", 1_000)


def far_store(disk: FakeDisk, **saved: Any) -> HourStore:
    store = open_store(disk, near_hours=2, **saved)
    store.set_near([FIRST, FIRST + 1])
    return store


def saved(store: HourStore, position: int) -> dict[str, Any]:
    near = {hour: HourCounts(c.rows, c.living) for hour, c in store.counts.near.items()}
    return {
        "counts": near,
        "far": {"hours": store.counts.saved(), "tier": store.far.saved(position)},
    }


def run_names(far: dict[str, Any]) -> set[str]:
    """The files that a checkpoint with these far hours names."""
    return set(Checkpoint({"far": far}, 0).runs.sizes)


@given(st.data())
@settings(max_examples=tries(80), deadline=None)
def test_against_a_model(data: st.DataObject) -> None:
    store, model = far_store(FakeDisk()), Model()
    for _ in range(data.draw(st.integers(1, 14), label="steps")):
        step = data.draw(st.sampled_from("fffffsslupnmp"), label="step")
        if play(step, store, model, data):
            continue
        if step == "n":
            run(store.border.bring_near(data.draw(st.integers(FIRST, LAST), label="near")))
        else:
            run(store.far.merges.work(store.counts))
    check_look_ups(store, model, model.refs[::-1])
    run(store.flusher.flush(upto=model.position))
    run(store.far.merges.work(store.counts))
    assert store.pile.empty
    assert store.pile.size_bytes == 0
    check_look_ups(store, model, data.draw(st.permutations(model.refs)))
    run(store.border.bring_near(LAST))
    run(store.flusher.flush(upto=model.position))
    check_chains(store, model)
    check_look_ups(store, model, model.refs)


@contextlib.contextmanager
def begun() -> Iterator[list[Work]]:
    """A list of work. What is left in it is closed at the end.

    Hypothesis may break an example off. The collector could then free the hours before the work
    that uses them.
    """
    works: list[Work] = []
    try:
        yield works
    finally:
        for work in works:
            work.close()


def advance(works: list[Work], work: Work) -> None:
    """Run one slice of a work, which leaves the list at its end."""
    job = next(work, "end")
    if job == "end":
        works.remove(work)
    elif callable(job):
        job()


@given(st.data())
@settings(max_examples=tries(60), deadline=None)
def test_between_the_slices(data: st.DataObject) -> None:
    """Flushes, merges and splits side by side, with frames and look-ups between their slices."""
    store, model = far_store(FakeDisk()), Model()
    with begun() as works:
        for _ in range(data.draw(st.integers(4, 60), label="steps")):
            step = data.draw(st.sampled_from("flsunmpqrrrrrr"), label="step")
            if step in "fs" or not model.refs:
                play(step, store, model, data)
            elif step == "l":
                check_look_ups(store, model, model.refs)
            elif step == "u":
                works.append(store.flusher.flush(upto=model.position))
            elif step == "n":
                works.append(
                    store.border.bring_near(data.draw(st.integers(FIRST, LAST), label="near"))
                )
            elif step == "m":
                works.append(store.far.merges.work(store.counts))
            elif step == "p":
                works.append(store.flusher.flush_states())
            elif step == "q":
                works.append(store.far.merges.flushed_states(store.counts))
            elif works:
                advance(works, data.draw(st.sampled_from(works), label="work"))
        check_look_ups(store, model, model.refs)
        while works:
            for work in list(works):
                advance(works, work)
    check_look_ups(store, model, model.refs)
    run(store.border.bring_near(LAST))
    run(store.flusher.flush(upto=model.position))
    check_chains(store, model)


@given(st.data())
@settings(max_examples=tries(60), deadline=None)
def test_cut_and_replay(data: st.DataObject) -> None:
    """Stand at a checkpoint and add the later frames again: the same rows, and the same folders."""
    disk = FakeDisk()
    store, model = far_store(disk), Model()

    def change() -> None:
        add_and_flush(store, model, data)
        if data.draw(st.booleans(), label="near"):
            run(store.border.bring_near(data.draw(st.integers(FIRST, LAST), label="hour")))
        run(store.far.merges.work(store.counts))

    for _ in range(data.draw(st.integers(1, 5))):
        change()
    put_some_states(store, model, data)
    known = dict(model.states)
    counts = store.counts.saved()
    near = {hour: HourCounts(c.rows, c.living) for hour, c in store.counts.near.items()}
    checkpoint = store.flusher.boundary = model.position
    store.far.merges.frozen = True
    if data.draw(st.booleans(), label="late frame"):
        model.add(store, *data.draw(frame()))
    run(store.flusher.flush(upto=model.position))
    run(store.flusher.flush_states())
    run(store.flusher.sync())
    far = {"hours": counts, "tier": store.far.saved(checkpoint)}
    store.flusher.boundary, store.far.merges.frozen = 0, False
    for _ in range(data.draw(st.integers(0, 4))):
        change()
        run(store.far.collect(run_names(far)))
    check_look_ups(store, model, model.refs)
    run(store.border.bring_near(LAST))
    run(store.flusher.flush(upto=model.position))
    before = files_of(disk, sorted(model.hours), store)
    store.close()
    again = open_store(disk, near, far=far, near_hours=2)
    again.set_near([FIRST, FIRST + 1])
    replay(again, model, checkpoint)
    model.states = known
    check_look_ups(again, model, model.refs)
    run(again.border.bring_near(LAST))
    run(again.flusher.flush(upto=model.position))
    check_chains(again, model)
    assert files_of(disk, sorted(model.hours), again) == before
    check_look_ups(again, model, model.refs)


def far_frames(store: HourStore, model: Model, count: int = 4) -> None:
    """Frames over twenty hours, each in a run of its own."""
    for number in range(count):
        due = [(FIRST + k % 20) * HOUR_MS + k * 700 for k in range(40)]
        model.add(store, due, [b"body %d" % (k * number) for k in range(40)], FIRST)
        run(store.flusher.flush(upto=model.position))


def test_states_of_many_flushes_are_few_runs() -> None:
    """Each look-up goes through all runs: with a run a flush, changes would slow down for ever."""
    store, model = far_store(FakeDisk()), Model()
    far_frames(store, model)
    for lease in range(1, 13):
        refs = model.refs[lease::12]
        entries = entries_of(MessageState.LEASED, lease, len(refs))
        store.put_states(np.array(refs, np.int64), entries)
        model.states |= dict.fromkeys(refs, (int(MessageState.LEASED), lease))
        run(store.flusher.flush_states())
        run(store.far.merges.flushed_states(store.counts))
        levels = [one.level for stack in store.far.states.all_stacks() for one in stack.sets]
        assert levels.count(0) < run_stack.FAN_IN
    assert len(levels) > 1
    check_look_ups(store, model, model.refs)


def test_full_disk() -> None:
    """ENOSPC in any write of a flush, a merge or a split leaves every row where it is found."""
    for fault in range(1, 90, 4):
        disk = FakeDisk(fault)
        store, model = far_store(disk), Model()
        far_frames(store, model, 2)
        due = [(FIRST + k % 20) * HOUR_MS + k * 700 for k in range(40)]
        model.add(store, due, [b"b%d" % k for k in range(40)], FIRST)
        disk.full_at = frozenset([disk.count + fault])
        for make in (
            lambda store=store, model=model: store.flusher.flush(upto=model.position),
            lambda store=store: store.far.merges.work(store.counts),
            lambda store=store: store.border.bring_near(LAST),
        ):
            with contextlib.suppress(DiskFullError):
                run(make())
            check_look_ups(store, model, model.refs)
        run(store.flusher.flush(upto=model.position))
        run(store.border.bring_near(LAST))
        check_chains(store, model)


def test_rows_that_nobody_needs_are_dropped() -> None:
    """A compaction drops them: their refs are unknown then, and the others keep their numbers."""
    store, model = far_store(FakeDisk()), Model()
    far_frames(store, model)
    dead = [ref for ref in model.refs if (ref & 0xFFFFFFFF) % 3 == 1]
    store.put_states(np.array(dead, np.int64), entries_of(MessageState.CANCELLED))

    def keep(keys: Any, _rows: Any) -> Any:
        yield None
        return store.far.states.get(keys, 1)["state"] != MessageState.CANCELLED

    before = store.far.rows.rows
    run(store.far.merges.work(store.counts, keep))
    far = [ref for ref in dead if store.counts.is_far(ref >> 43)]
    assert store.far.rows.rows == before - len(far)
    gone = np.array(far, np.int64)
    assert not store.check_tags(gone, store.rows(gone)).any()
    living = [ref for ref in model.refs if ref not in set(dead)]
    check_look_ups(store, model, living)
    run(store.border.bring_near(LAST))
    assert not store.check_tags(gone, store.rows(gone)).any()
    check_look_ups(store, model, living)
    for hour in {ref >> 43 for ref in far}:
        folder = store.folders.hour(hour)
        kept = folder.heads.get()
        walked = sorted(
            index
            for second in np.flatnonzero(kept.count).tolist()
            for part in folder.walk_second(second, 1 << 32)
            for index in part
        )
        assert walked == sorted(ref & 0xFFFFFFFF for ref in living if ref >> 43 == hour)
        assert (folder.heads.rebuild().newest == kept.newest).all()


def test_dead_rows_that_have_to_stay_are_merged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each merge wrote all runs again, without a pause, since as many were dead behind it."""
    monkeypatch.setattr(far_tier, "_DEAD_ROWS_MIN", 4)
    store, model = far_store(FakeDisk()), Model()
    far_frames(store, model, 8)
    far = [hour for hour in store.counts if store.counts.is_far(hour)]
    for hour in far:
        store.counts.add("living", np.array([hour]), -store.counts[hour].living)
    assert store.far.merges.due(store.counts)
    rows = store.far.rows.rows
    run(store.far.merges.work(store.counts))
    assert store.far.rows.rows == rows
    assert not store.far.merges.due(store.counts)
    far_frames(store, model, 24)
    assert store.far.merges.due(store.counts)


@pytest.mark.parametrize("where", [8, 70, 700, -3])
def test_rot_is_found(where: int) -> None:
    """A flipped bit of a run is an error before anything of it is believed."""
    disk = FakeDisk()
    store, model = far_store(disk), Model()
    far_frames(store, model, 1)
    store.close()
    path = f"{FOLDER}/far/1.run"
    size = len(disk.content(path))
    disk.flip(path, (where % size) * 8)
    far = [ref for ref in model.refs if store.counts.is_far(ref >> 43)]
    refs = np.array(far, np.int64)
    with pytest.raises(CorruptionError):
        store.records(refs, store.rows(refs))


def test_the_border_follows_the_clock() -> None:
    """Hours get folders as they come near; a clock set back by a year makes later hours far."""
    disk = FakeDisk()
    store, model = far_store(disk), Model()
    far_frames(store, model, 1)
    assert store.counts.far_from == FIRST + 2
    store.set_near([FIRST + 5, FIRST + 6])
    assert store.border.split_due
    run(store.border.split_work())
    assert not store.border.split_due
    assert store.counts.far_from == FIRST + 7
    assert disk.exists(store.folders.hour(FIRST + 6).folder)
    store.set_near([FIRST - 9_000, FIRST - 8_999])
    assert store.counts.far_from == FIRST + 7, "runs still hold rows of hours that have left"
    assert store.far.merges.due(store.counts)
    run(store.far.merges.work(store.counts))
    assert not store.far.merges.due(store.counts)
    store.set_near([FIRST - 9_000, FIRST - 8_999])
    assert store.counts.far_from == FIRST - 8_998
    assert not store.counts.is_far(FIRST + 6), "it keeps its folder"
    assert store.counts.is_far(FIRST + 7)
    far_frames(store, model, 1)
    check_look_ups(store, model, model.refs)


def test_the_first_far_hour_is_in_the_far_tier() -> None:
    """As all later ones, also once one of its messages has ended and another one comes."""
    store, model = far_store(FakeDisk()), Model()
    border = store.counts.far_from
    model.add(store, [border * HOUR_MS, border * HOUR_MS + 1], [b"a", b"b"], 0)
    run(store.flusher.flush(upto=model.position))
    store.counts.count_living({border: 1}, -1)
    model.add(store, [border * HOUR_MS + 2], [b"c"], 0)
    check_look_ups(store, model, model.refs)
    assert store.counts[border].rows == 3
    assert store.counts[border].living == 2


def test_numbers_of_files_are_not_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was being written when the process died is removed, and its number free again."""
    monkeypatch.setattr(far_tier, "FLUSHED_RUN_BYTES", 1 << 20)
    disk = FakeDisk()
    store, model = far_store(disk), Model()
    far_frames(store, model, 1)
    run(store.flusher.sync())
    kept = saved(store, model.position)
    position = model.position
    far_frames(store, model, 1)
    store.close()
    again = far_store(disk, **kept)
    assert [name for name in disk.listdir(f"{FOLDER}/far") if name.endswith(".run")] == ["1.run"]
    replay(again, model, position)
    run(again.flusher.flush(upto=model.position))
    check_look_ups(again, model, model.refs)
    assert run_names(saved(again, model.position)["far"]) == {"1.run", "2.run"}


def test_hours_that_kept_their_folders_are_not_split_again() -> None:
    """Once the clock was set back, an hour beyond the border may have a folder already."""
    store, model = far_store(FakeDisk()), Model()
    far_frames(store, model, 1)
    run(store.border.bring_near(LAST))
    store.set_near([FIRST - 9_000])
    store.set_near([FIRST])
    run(store.border.split_work())
    run(store.border.bring_near(LAST))
    check_look_ups(store, model, model.refs)


def test_hours_behind_the_border_are_not_brought_near() -> None:
    """All far hours lie behind the one that is brought near: they stay in the far tier."""
    store = far_store(FakeDisk())
    far = [FIRST + 10 + k for k in range(20)]
    store.counts.take_numbers(np.array(far), np.ones(len(far), np.int64), 1)
    assert store.counts.next_far(FIRST + 4) is None
    run(store.border.bring_near(FIRST + 4))
    assert store.counts.far_from == FIRST + 5
    assert store.counts.far_hours().tolist() == far
    assert store.counts.next_far(FIRST + 12) == FIRST + 10


def test_an_empty_hour_gets_rows_beside_the_split_of_a_later_one() -> None:
    """They are not left behind when the border passes their hour."""
    store, model = far_store(FakeDisk()), Model()
    model.add(store, [(FIRST + 12) * HOUR_MS], [b"later"], 0)
    run(store.flusher.flush(upto=model.position))
    split = store.border.bring_near(FIRST + 14)
    job = next(split)
    model.add(store, [(FIRST + 7) * HOUR_MS], [b"sooner"], 0)
    assert callable(job)
    job()
    run(split)
    check_look_ups(store, model, model.refs)
    run(store.flusher.flush(upto=model.position))
    check_look_ups(store, model, model.refs)


def test_many_sets_are_merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After kills in a row there are more sets than usual; a slice of the merge reads them all."""
    store, model = far_store(FakeDisk()), Model()
    far_frames(store, model, 40)
    monkeypatch.setattr(run_stack, "FAN_IN", 8)
    run(store.far.merges.work(store.counts))
    assert len(store.far.rows.sets) < 16
    check_look_ups(store, model, model.refs)


def test_large_messages_are_merged_and_split_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices by number alone would have 32,768 messages of 4 MiB."""
    monkeypatch.setattr(run_stack, "SLICE_ROWS", 1_024)
    monkeypatch.setattr(run_stack, "SLICE_BYTES", 1 << 20)
    monkeypatch.setattr(run_stack, "RUN_ROWS_MAX", 131_072)
    monkeypatch.setattr(far_border, "SPLIT_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(far_tier, "FLUSHED_RUN_BYTES", 16 << 20)
    store, model = far_store(FakeDisk()), Model()
    hour = FIRST + 5
    for k in range(4):
        due = [hour * HOUR_MS + at for at in range(12)]
        # The last one is larger than a part.
        bodies = [bytes([k * 12 + at]) * 300_000 for at in range(11)] + [bytes([k]) * 1_200_000]
        model.add(store, due, bodies, FIRST)
        run(store.flusher.flush(upto=model.position))
    with monkeypatch.context() as patch:
        read = noted_reads(patch, SortedRun, "records", lambda _at, _offsets, sizes: sizes.sum())
        run(store.far.merges.work(store.counts))
        assert len(store.far.rows.sets) == 1
        merged = list(read)
        read.clear()
        store.set_near([hour])
        run(store.border.split_work())
    for each in merged, read:
        assert sum(each) >= 4 * 12 * 300_000
        assert max(each) <= 1_300_000
    assert store.folders.hour(hour).row_count == 48
    check_look_ups(store, model, model.refs)
    check_chains(store, model)


def test_a_run_that_a_split_and_a_merge_use() -> None:
    """A merge begins to read it during a job of the split, and keeps it when the split is over."""
    files = RunNumbers(FakeDisk(), FOLDER)
    with files.pinned([5]):
        files.claim([5, 6])
    assert files.in_use() == {"5.run", "6.run"}
    with files.pinned([5]):
        files.release([5, 6])
        assert files.in_use() == {"5.run"}
    assert files.in_use() == set()


@pytest.mark.parametrize("lead", range(1, 4))
def test_a_merge_that_begins_during_a_split(lead: int) -> None:
    """Its runs stay until it ends, even those that the split has made needless."""
    store, model = far_store(FakeDisk()), Model()
    for k in range(8):
        # Each flush has several runs, and the first ones have rows of one hour only.
        due = [(FIRST + 5 + hour) * HOUR_MS + k for hour in (0, 0, 0, 0, 1, 2) for _ in range(5)]
        model.add(store, due, [b"x" * 100] * len(due), 0)
        run(store.flusher.flush(upto=model.position))
    split = store.border.bring_near(FIRST + 5)
    run(islice(split, lead - 1))
    job = next(split, None)
    merge = store.far.merges.work(store.counts)
    begun = next(merge)
    run([job])
    run(split)
    run(store.far.collect(set()))
    run([begun])
    run(merge)
    check_look_ups(store, model, model.refs)


def test_a_run_whose_number_is_taken_during_a_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge takes the numbers of its new runs on the thread that writes them."""
    disk = FakeDisk()
    store, model = far_store(disk), Model()
    model.add(store, [(FIRST + 9) * HOUR_MS] * 20, [b"x"] * 20, 0)
    run(store.flusher.flush(upto=model.position))
    files = store.far.files
    in_use = files.in_use
    taken: list[str] = []

    def in_use_before() -> set[str]:
        found = in_use()
        taken.append(f"{FOLDER}/far/{files.take_number()}.run")
        disk.open(taken[0], create=True)
        return found

    monkeypatch.setattr(files, "in_use", in_use_before)
    run(store.far.collect(set()))
    assert disk.exists(taken[0])


@pytest.mark.parametrize("lead", range(1, 4))
def test_a_clock_that_goes_back_during_a_split(lead: int) -> None:
    """Hours before the one that is split get rows: they must not be far ones when it ends."""
    store, model = far_store(FakeDisk()), Model()
    model.add(store, [(FIRST + 12) * HOUR_MS] * 20, [b"x"] * 20, 0)
    run(store.flusher.flush(upto=model.position))
    run(store.border.bring_near(FIRST + 11))
    split = store.border.bring_near(FIRST + 12)
    run(islice(split, lead))
    store.set_near([FIRST + 2, FIRST + 3])
    for hour in range(FIRST + 2, FIRST + 13):
        model.add(store, [hour * HOUR_MS] * 3, [b"y"] * 3, 0)
    run(split)
    check_look_ups(store, model, model.refs)
    run(store.flusher.flush(upto=model.position))
    check_look_ups(store, model, model.refs)
    store.set_near([FIRST + 3, FIRST + 4])
    run(store.border.split_work())
    check_look_ups(store, model, model.refs)
