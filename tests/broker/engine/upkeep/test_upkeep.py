"""Retention: ended hours and old segments go when nobody needs them any more, and not before."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pytest

from delaylog.broker.engine.upkeep import checkpoints, saved_state
from delaylog.broker.engine.upkeep.checkpoints import IDLE_BYTES, IDLE_MS
from delaylog.storage.checkpoint import Checkpoint
from delaylog.storage.errors import DiskFullError
from delaylog.storage.layout import Int64Array, MessageState
from delaylog.storage.runs import id_index, run_store
from delaylog.storage.runs.run_store import KeyArray, RunWriter
from delaylog.storage.work import Work

HOUR = 3_600_000
KEEP = 300_000


def hour_folders(host) -> list[str]:
    return sorted(os.listdir(host.folder / "hours"))


def ended_hour(host, count: int = 10, **members: Any) -> None:
    """An hour that is over, and whose messages are acknowledged and were kept."""
    host.send(count, delay=1_000, **members)
    host.advance(2_000)
    host.ack(host.receive())
    host.advance(3 * HOUR)


def test_an_ended_hour_goes_after_its_keep_time_and_stays_gone_over_a_restart(host) -> None:
    """Two kept checkpoints, the hour floor and `ended_keep_ms` must all be past it."""
    host.send(10, delay=1_000)
    host.advance(2_000)
    host.ack(host.receive())
    host.checkpoint()
    assert len(hour_folders(host)) == 1
    host.advance(3 * HOUR)
    host.checkpoint(3)
    assert hour_folders(host) == []
    host.restart()
    assert hour_folders(host) == []
    assert host.topic.default.counts.acked == 10
    host.send(1, delay=10)
    host.advance(10)
    assert host.bodies() == [b"0"]


def checkpoints_until_empty(host) -> None:
    host.checkpoint()  # until then rows and states may not have a folder at all
    for _ in range(4):
        if hour_folders(host) == []:
            return
        host.checkpoint()
    assert hour_folders(host) == []


def test_a_restart_right_after_an_hour_was_removed(host) -> None:
    """The newest checkpoint was written before the removal and still names the hour."""
    ended_hour(host, ids=[f"m{k}" for k in range(10)])
    checkpoints_until_empty(host)
    host.restart()
    assert hour_folders(host) == []
    assert host.state_of("m3") is None
    host.send(1, delay=10, ids=["m3"])
    host.advance(10)
    assert host.bodies() == [b"0"]


def test_a_removal_that_was_cut_short(host) -> None:
    """A folder of which only some files are gone is no corruption: the removal is finished."""
    ended_hour(host)
    host.checkpoint()
    while host.engine.state.hours.counts:
        before = {name: files(host, name) for name in hour_folders(host)}
        host.checkpoint()
    name, kept = before.popitem()
    host.engine.close()
    (host.folder / "hours" / name).mkdir()  # the delay index goes first
    (host.folder / "hours" / name / "extents").write_bytes(kept["extents"])
    host.open()
    assert hour_folders(host) == []


def files(host, name: str) -> dict[str, bytes]:
    folder = host.folder / "hours" / name
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "state"}


def test_an_origin_stays_readable_after_the_moved_message_ended(host) -> None:
    """A message that moved out of its hour ends late: its id is answered for `ended_keep_ms`."""
    result = host.send(1, delay=1_000)
    name = host.ids_of(result)[0]
    host.advance(2_000)
    host.nack(host.receive(), delay=4 * HOUR)
    host.advance(4 * HOUR)
    got = host.receive()
    host.checkpoint(2)
    assert host.ack(got) == 1
    host.checkpoint(2)
    assert host.state_of(name).name == "ACKED"
    host.advance(KEEP)
    host.checkpoint(2)
    host.restart()
    assert host.state_of(name) is None


def test_an_id_whose_newest_row_went_with_its_hour(host) -> None:
    """The origin's hour is pinned by another message; the moved row's hour has ended and gone."""
    host.send(2, delay=1_000, ids=["moved", "pin"])
    host.advance(1_000)
    moved, pin = host.receive()
    host.nack([moved], delay=2 * HOUR)
    host.nack([pin], delay=0)
    host.advance(2 * HOUR)
    got = host.receive()
    assert {m.id for m in got} == {"moved", "pin"}
    host.ack([m for m in got if m.id == "moved"])
    host.nack([m for m in got if m.id == "pin"], delay=0)
    host.advance(4 * HOUR)
    host.checkpoint(3)
    assert len(hour_folders(host)) == 1, "only the pinned hour is left"
    assert host.state_of("moved") is None
    assert host.send(1, ids=["moved"]).results == 0
    host.advance(0)
    assert host.state_of("moved").name == "READY"


def test_an_hour_that_was_passed_through_takes_no_id_along(host) -> None:
    """A message that moved on twice keeps its id when the hour in between is removed."""
    host.configure(ended_keep_ms=0)
    host.send([b"x"], delay=HOUR, ids=["m"])
    host.checkpoint()
    between = host.now_ms // HOUR + 2
    assert host.reschedule(["m"], host.now_ms + 2 * HOUR) == [0]
    host.checkpoint()
    assert host.reschedule(["m"], host.now_ms + 20 * HOUR) == [0]
    while between in host.engine.state.hours.counts:
        host.advance(HOUR)
        host.send([b"y"])
        host.ack(host.receive())
        host.checkpoint()
    assert host.state_of("m") is MessageState.WAITING
    assert host.send([b"again"], delay=HOUR, ids=["m"]).results.tolist() == [1], "kept"
    host.restart()
    assert host.cancel(["m"]) == [0]


def test_a_checkpoint_is_due_by_bytes_by_time_and_after_a_pause(host) -> None:
    """A broker that went quiet takes one early, but not for a trickle."""
    due = host.engine.upkeep.checkpoint_due
    host.checkpoint()
    host.now_ms += 60_000
    assert not due(host.now_ms), "nothing happened"
    host.send([b"x" * 100], delay=HOUR)
    assert due(host.now_ms), "by time"
    host.checkpoint()
    host.send([b"x" * IDLE_BYTES], delay=HOUR)
    assert not due(host.now_ms)
    assert not due(host.now_ms + IDLE_MS - 1)
    host.send([b"y"], delay=HOUR)
    assert not due(host.now_ms + IDLE_MS), "it goes on"
    assert due(host.now_ms + 2 * IDLE_MS), "after a pause"
    host.checkpoint()
    host.send([b"y"], delay=HOUR)
    assert not due(host.now_ms), "a trickle"
    assert not due(host.now_ms + 2 * IDLE_MS)
    for _ in range(41):
        host.send([b"x" * (4 << 20)], delay=HOUR, turn=False)
        host.sync()
    assert due(host.now_ms), "by bytes"


def test_rebuilt_ids_lead_to_the_newest_message_of_an_id(host, monkeypatch) -> None:
    """An id that was used again for an earlier hour, or often, is found as before.

    The index is lost and rebuilt from the rows, hour by hour, in parts as small as they get.
    """
    monkeypatch.setattr(saved_state, "RECENT_IDS_MAX", 1)
    host.send(2, delay=5 * HOUR, ids=["again", "often"])
    host.cancel(["again", "often"])
    host.send(2, delay=HOUR, ids=["again", "often"])
    for delay in (3 * HOUR, 2 * HOUR, HOUR):
        host.cancel(["often"])
        host.send(1, delay=delay, ids=["often"])
    host.send(3, delay=4 * HOUR, ids=["a", "b", "c"])
    host.checkpoint()
    before = {name: host.state_of(name) for name in ("again", "often", "a", "b", "c")}
    assert set(before.values()) == {MessageState.WAITING}
    host.engine.close()
    shutil.rmtree(host.folder / "ids")
    host.open()
    assert {name: host.state_of(name) for name in before} == before
    sent = host.topic.sent
    host.send(2, delay=HOUR, ids=["again", "often"])
    assert host.topic.sent == sent, "both are duplicates"


def test_an_hour_that_is_changed_while_it_is_removed_stays(host) -> None:
    """A frame that a start replays names it; the next checkpoints let it go."""
    host.configure(ended_keep_ms=0)
    name = host.ids_of(host.send(3, delay=0))[0]
    host.ack(host.receive())
    host.advance(3 * HOUR)
    host.send(1, delay=0)
    host.ack(host.receive())
    upkeep = host.engine.upkeep
    upkeep.files_pinned = lambda: True
    host.checkpoint(2)
    removal = upkeep.drop_hours(host.now_ms)
    next(removal)
    host.end_by_force(name, MessageState.CANCELLED, hide=True)
    host.engine.run_inline(removal)
    host.restart()
    assert host.state_of(name) is MessageState.CANCELLED
    host.checkpoint(4)
    assert host.state_of(name) is None


def test_an_id_outlives_the_hours_its_message_came_through(host) -> None:
    """Retried twice, so that the hour of its first retry goes while it waits in a third one."""
    host.send([b"x"], delay=0, ids=["order-1"])
    for delay in (2 * HOUR, 9 * HOUR):
        host.nack(host.receive(), delay=delay)
        host.advance(2 * HOUR)
    host.advance(3 * HOUR)
    host.checkpoint(4)
    assert len(hour_folders(host)) == 2, "where it began, and where it waits"
    assert host.state_of("order-1") is MessageState.WAITING
    assert host.send([b"y"], delay=0, ids=["order-1"]).results == [1], "kept, not created"
    assert host.cancel(["order-1"]) == [0]


def run_with_worker(work: Work) -> None:
    """Run work as the node does: slices on this thread, jobs on another."""
    with ThreadPoolExecutor(1) as worker:
        for step in work:
            if callable(step):
                worker.submit(step).result()


def test_retention_leaves_its_io_to_a_worker(host, monkeypatch) -> None:
    """An hour's ids and files go without a write, a sync or a removal on the loop's thread, and no
    write of the id index is large."""
    ended_hour(host, 300, ids=[f"m{k}" for k in range(300)])
    host.checkpoint()
    for module in (id_index, run_store):
        monkeypatch.setattr(module, "SLICE_ENTRIES", 100)
    here = threading.get_ident()
    fs = host.engine.state.fs
    written: list[int] = []
    add, finish = RunWriter.add, RunWriter.finish

    def counted(writer: RunWriter, keys: KeyArray, refs: Int64Array) -> None:
        assert threading.get_ident() != here, "a run is written on the loop"
        assert not refs.any(), "all of them are forgotten"
        written.append(len(keys))
        add(writer, keys, refs)

    def synced(writer: RunWriter) -> None:
        assert threading.get_ident() != here, "a run is synced on the loop"
        finish(writer)

    def elsewhere(name: str):
        real = getattr(fs, name)

        def call(path: str) -> None:
            assert threading.get_ident() != here, f"{name} on the loop"
            real(path)

        monkeypatch.setattr(fs, name, call)

    monkeypatch.setattr(RunWriter, "add", counted)
    monkeypatch.setattr(RunWriter, "finish", synced)
    for name in ("unlink", "remove_tree", "sync_folder"):
        elsewhere(name)
    for _ in range(3):
        host.sync()
        run_with_worker(host.engine.upkeep.checkpoint(lambda: host.now_ms))
    assert hour_folders(host) == []
    assert written == [100, 100, 100]


def test_runs_of_ids_are_merged_beside_checkpoints(host) -> None:
    """Due after some checkpoints, not while one runs; a stop gives a merge up, without a trace."""
    engine, names = host.engine, [f"m{k}" for k in range(80)]
    for k in range(4):
        host.send(20, delay=HOUR, ids=names[20 * k : 20 * k + 20])
        assert not engine.housekeeping.ids_due()
        engine.run_inline(engine.upkeep.checkpoint(lambda: host.now_ms))
    assert engine.housekeeping.ids_due()
    engine.upkeep.checkpoint_running = True
    assert not engine.housekeeping.ids_due()
    engine.upkeep.checkpoint_running = False
    asked: list[bool] = []
    engine.run_inline(engine.housekeeping.ids_work(lambda: asked.append(True) or len(asked) > 1))
    assert engine.housekeeping.ids_due()
    engine.run_inline(engine.housekeeping.ids_work())
    assert not engine.housekeeping.ids_due()
    runs = [path.name for path in (host.folder / "ids").glob("*.ids")]
    assert len(runs) == 1
    host.crash()
    assert engine.state.ids.set_aside == host.engine.state.ids.set_aside == ""
    assert [host.state_of(name) for name in names] == [MessageState.WAITING] * 80


@pytest.mark.parametrize("lead", range(0, 20, 2))
def test_a_merge_of_ids_and_a_checkpoint_due_at_once(host, lead: int) -> None:
    """One waits for the other: both replace the list of runs, and unmap what it drops.

    Both are spawned in one turn; the checkpoint may go `lead` steps ahead of the merge.
    """
    engine, names = host.engine, [f"m{k}" for k in range(100)]
    for k in range(4):
        host.send(20, delay=HOUR, ids=names[20 * k : 20 * k + 20])
        engine.run_inline(engine.upkeep.checkpoint(lambda: host.now_ms))
    host.send(20, delay=HOUR, ids=names[80:])
    host.sync()
    merge = engine.housekeeping.ids_work()
    checkpoint = engine.upkeep.checkpoint(lambda: host.now_ms)
    works = [merge, checkpoint]
    steps = itertools.chain([merge], [checkpoint] * lead, itertools.cycle(tuple(works)))
    while works:
        work = next(steps)
        step = next(work, False)
        if step is False and work in works:
            works.remove(work)
        elif callable(step):
            step()
    assert not engine.housekeeping.ids_due()
    stored = run_store.read_stored(host.fs, f"{host.folder}/ids")
    assert sum(count for _, count in stored.runs) == 100
    assert len(list((host.folder / "ids").glob("*.ids"))) == len(stored.runs)
    host.send(100, delay=HOUR, ids=names)
    assert host.topic.sent == 100
    host.crash()
    assert host.engine.state.ids.set_aside == ""
    assert [host.state_of(name) for name in names] == [MessageState.WAITING] * 100


def test_a_clock_that_goes_back_finds_no_half_removed_hour(host) -> None:
    """The hour takes rows again while the job that deletes its files has not run yet."""
    ended_hour(host)
    host.checkpoint()
    hours = host.engine.state.hours
    work = host.engine.upkeep.checkpoint(lambda: host.now_ms)
    while hours.counts:
        host.sync()
        step = next(work, False)
        if step is False:
            work = host.engine.upkeep.checkpoint(lambda: host.now_ms)
        elif callable(step) and hours.counts:
            step()
    # The job of the step above has not run.
    assert hour_folders(host) != []
    host.set_back(3 * HOUR)
    assert hour_folders(host) == []
    assert callable(step)
    host.send(3, delay=1_000)
    host.flush()
    step()
    work.close()
    host.advance(2_000)
    assert len(host.bodies()) == 3
    host.restart()
    assert len(hour_folders(host)) == 1


def test_the_next_checkpoint_removes_an_hour_whose_job_did_not_run(host) -> None:
    """A step down closes the work and drops its job; nothing else would remove the files."""
    ended_hour(host)
    host.checkpoint()
    hours = host.engine.state.hours
    while hours.counts:
        work = host.engine.upkeep.checkpoint(lambda: host.now_ms)
        for step in work:
            host.sync()
            if not hours.counts:
                break
            if callable(step):
                step()
        work.close()
    assert hour_folders(host) != []
    host.checkpoint()
    assert hour_folders(host) == []


def test_inline_work_that_finds_the_disk_full_has_ended(host, monkeypatch) -> None:
    """While its caller keeps the error; the next work would wait for it for ever."""
    engine = host.engine

    def full(*_: object) -> NoReturn:
        raise DiskFullError("no space")

    host.send(5, delay=1_000)
    host.sync()
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write_checkpoint", full)
        with pytest.raises(DiskFullError) as caught:
            engine.run_inline(engine.upkeep.checkpoint(lambda: host.now_ms))
    assert not engine.upkeep.checkpoint_running
    host.checkpoint()
    assert engine.upkeep.checkpoints == 1
    assert str(caught.value) == "no space"


def test_a_checkpoint_before_the_first_leadership_names_none() -> None:
    """A member that is stopped at once writes one; its log may begin at the same position."""
    assert Checkpoint({"epoch": 0, "epochs": []}, 0).epochs == []
