"""The keyspace in the engine: what was committed comes back, whatever was made of it meanwhile.

Method: sets, deletions and expiries by the commands themselves beside messages; checkpoints,
snapshots, restarts and kills in between. Snapshots are made in process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.keyspace.keyspace_files import (
    FOLDER,
    SnapshotTask,
    make_snapshot,
    snapshot_name,
)
from delaylog.broker.engine.keyspace.keyspace_part import apply_effects
from delaylog.broker.engine.keyspace.keyspace_snapshots import (
    RETRY_MS,
    SnapshotFailed,
    log_keyspace,
)
from delaylog.storage.errors import CorruptionError, OlderFormatError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import FrameKind
from tests.broker.engine.keyspace_work import (
    SMALL,
    Runner,
    execute,
    files_in,
    put,
    small_log,
    snapshot,
)
from tests.broker.keyspace.snapshots.contents import contents_of

__all__ = ["small_log"]

# --------------------------------------------------------------------------- a broker alone


def test_a_checkpoint_needs_the_log_from_the_snapshot_on(open_host: Any) -> None:
    """Frames in front of a checkpoint are applied once, other kinds are passed over."""
    host = open_host(limits=SMALL)
    execute(host.engine, host.now_ms, [b"SET", b"a", b"1"])
    first = host.engine.state.position
    for turn in range(6):
        host.send(20)
        execute(host.engine, host.now_ms, [b"SET", b"k%d" % turn, b"x"])
        host.checkpoint()
    log = host.engine.state.log
    assert log.first_position < first, "kept for the first frame"
    assert [one.log_from for one in host.engine.upkeep.kept] == [0, 0]
    expected = contents_of(host.engine.state.keyspace)
    host.restart()
    assert contents_of(host.engine.state.keyspace) == expected
    assert len(host.receive()) == 120


def test_without_frames_the_log_goes_as_ever(open_host: Any) -> None:
    """A broker without Redis commands keeps no log for them."""
    host = open_host(limits=SMALL)
    for _ in range(6):
        host.send([b"x" * 500] * 3)
        host.checkpoint()
    kept = host.engine.upkeep.kept
    assert all(one.log_from == one.position for one in kept)
    assert host.engine.state.log.first_position > 0
    assert files_in(host.folder) == []


def test_a_snapshot_lets_the_log_go(open_host: Any) -> None:
    """Its position moves up with checkpoints as long as no frame comes; the file stays."""
    host = open_host(limits=SMALL)
    for turn in range(10):
        execute(host.engine, host.now_ms, [b"SET", b"k%d" % turn, b"x" * 100])
        host.send(10)
    assert host.engine.upkeep.snapshots.due(host.now_ms, short_of_space=False)
    assert snapshot(host.engine)
    base = host.engine.state.keyspace_base
    assert (base.frames, base.bytes) == (0, 0)
    made_at = base.position
    assert host.engine.upkeep.checkpoint_due(host.now_ms), "it is of use once one names it"
    assert files_in(host.folder) == [snapshot_name(made_at)]
    for _ in range(4):
        host.send([b"x" * 500] * 3)
        host.checkpoint()
    assert host.engine.state.log.first_position > made_at
    assert files_in(host.folder) == [snapshot_name(made_at)]
    expected = contents_of(host.engine.state.keyspace)
    host.restart()
    assert contents_of(host.engine.state.keyspace) == expected
    assert host.engine.state.keyspace_base.file == snapshot_name(made_at)


def test_files_of_kept_checkpoints_stay(open_host: Any) -> None:
    """The older checkpoint's snapshot is there as long as it may be needed, then it goes."""
    host = open_host(limits=SMALL)
    names = []
    for turn in range(5):
        execute(host.engine, host.now_ms, [b"SET", b"k%d" % turn, b"x" * 100])
        assert snapshot(host.engine)
        names.append(host.engine.state.keyspace_base.file)
        host.send(1)
        host.checkpoint()
        assert files_in(host.folder) == names[-2:]
    # The newest checkpoint is damaged: the one before it, with its snapshot, is enough.
    newest = max(host.folder.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    raw = bytearray(newest.read_bytes())
    raw[100] ^= 1
    expected = contents_of(host.engine.state.keyspace)
    host.sync()
    host.engine.close()
    newest.write_bytes(raw)
    host.open()
    assert contents_of(host.engine.state.keyspace) == expected
    assert files_in(host.folder) == names[-2:], "one cannot be read: all stay"


def test_snapshots_are_made_when_they_are_worth_it(
    open_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaylog.broker.engine.keyspace.keyspace_snapshots.SNAPSHOT_BYTES", 1_000)
    monkeypatch.setattr(
        "delaylog.broker.engine.keyspace.keyspace_snapshots.SNAPSHOT_LOG_BYTES", 50_000
    )
    host = open_host()
    due = lambda: host.engine.upkeep.snapshots.due(host.now_ms, short_of_space=False)  # noqa: E731
    host.send([b"x" * 60_000])
    assert not due(), "no frame of the keyspace"
    execute(host.engine, host.now_ms, [b"SET", b"a", b"1"])
    host.checkpoint()
    assert due(), "one frame holds much log"
    assert snapshot(host.engine)
    assert not due()
    execute(host.engine, host.now_ms, [b"SET", b"a", b"1" * 999])
    assert due(), "many effects"
    assert snapshot(host.engine)
    size = host.engine.state.keyspace_base.size
    assert size > 1_000
    execute(host.engine, host.now_ms, [b"SET", b"b", b"1" * 1_000])
    assert host.engine.state.keyspace_base.bytes < size
    assert not due(), "it has to be in proportion to the snapshot"
    assert not host.engine.upkeep.snapshots.due(host.now_ms, short_of_space=True)


def test_without_space_a_small_one_is_made_here(open_host: Any) -> None:
    """With the reserve behind it; and as long as none is there, checkpoints free nothing."""

    def child(task: SnapshotTask) -> Any:
        raise AssertionError("a child has no reserve")

    host = open_host(make_snapshot=child)
    upkeep, state = host.engine.upkeep, host.engine.state
    upkeep.short_of_space = True
    execute(host.engine, host.now_ms, [b"SET", b"a", b"1"])
    lean = max(host.engine.reserve.target_bytes // 16, 256 << 10)
    while state.position < 5 * lean:
        host.send([bytes(1 << 20)] * 4)
    host.checkpoint(2)
    host.now_ms += 1_000
    assert not upkeep.checkpoint_due(host.now_ms), "the log waits for a snapshot"
    assert upkeep.snapshots.due(host.now_ms, short_of_space=True)

    work = upkeep.snapshots.work(lambda: host.now_ms, short_of_space=True)
    host.engine.run_inline(work)
    assert upkeep.checkpoint_due(host.now_ms)
    host.checkpoint()
    assert upkeep.checkpoint_due(host.now_ms + 1_000), "the other one still keeps it"
    host.checkpoint()
    assert state.log.first_position > 4 * lean
    assert not upkeep.checkpoint_due(host.now_ms + 1_000)


def test_a_try_that_fails_is_made_again(open_host: Any) -> None:
    runner = Runner()
    host = open_host(limits=SMALL, make_snapshot=runner)
    execute(host.engine, host.now_ms, [b"SET", b"a", b"1" * 400])
    snapshots = host.engine.upkeep.snapshots
    told: list[str] = []
    snapshots.on_failure = told.append

    def fail(task: SnapshotTask) -> Any:
        Path(task.aside).parent.mkdir(exist_ok=True)
        Path(task.aside).write_bytes(b"half of it")
        raise SnapshotFailed("killed")

    here, runner.begin = runner.begin, fail
    assert not snapshot(host.engine, host.now_ms)
    assert told == ["killed"]
    assert files_in(host.folder) == [], "nothing is left of it"
    assert not snapshots.due(host.now_ms, short_of_space=False)
    runner.begin = here
    host.now_ms += RETRY_MS
    assert snapshots.due(host.now_ms, short_of_space=False)
    assert snapshot(host.engine)


def test_work_goes_on_while_one_is_made(open_host: Any) -> None:
    """Frames and checkpoints meanwhile belong to the next; an end does not wait for it."""
    runner = Runner()
    runner.begin = runner.slowly
    host = open_host(limits=SMALL, make_snapshot=runner)
    execute(host.engine, host.now_ms, [b"SET", b"a", b"1"])
    snapshots = host.engine.upkeep.snapshots
    host.sync()
    work = snapshots.work(lambda: host.now_ms)
    step = next(work)
    assert callable(step)
    step()
    assert isinstance(next(work), float)
    assert not snapshots.due(host.now_ms, short_of_space=False), "one at a time"
    execute(host.engine, host.now_ms, [b"SET", b"a", b"2"])
    host.checkpoint()
    assert host.engine.state.keyspace_base.frames == 2
    runner.slow[-1].finished = True
    with pytest.raises(StopIteration):
        next(work)
    base = host.engine.state.keyspace_base
    assert (base.frames, base.position) == (1, runner.slow[0].task.position)
    host.checkpoint()
    host.restart()
    assert host.engine.state.keyspace.databases[0].values == {b"a": b"2"}
    assert [one.stopped for one in runner.slow] == [True]

    leaving = host.engine.upkeep.snapshots.work(lambda: host.now_ms, stopping=lambda: True)
    host.engine.run_inline(leaving)
    assert [one.stopped for one in runner.slow] == [True, True]
    assert not host.engine.upkeep.snapshots.running


@pytest.mark.parametrize("what", ["flipped", "missing", "other"])
def test_a_damaged_snapshot_is_named(open_host: Any, what: str) -> None:
    host = open_host(limits=SMALL)
    execute(host.engine, host.now_ms, [b"SET", b"a", b"1" * 400])
    assert snapshot(host.engine)
    host.checkpoint()
    host.engine.close()
    [name] = files_in(host.folder)
    path = host.folder / FOLDER / name
    if what == "flipped":
        raw = bytearray(path.read_bytes())
        raw[60] ^= 4
        path.write_bytes(raw)
    elif what == "missing":
        path.rename(path.with_suffix(".kept"))
    else:
        task = SnapshotTask(str(host.folder), "", 0, 0, 0, 0, "x")
        make_snapshot(OsFileSystem(), task)
        os.replace(host.folder / FOLDER / snapshot_name(0), path)
    with pytest.raises(CorruptionError) as caught:
        host.open()
    assert caught.value.path == str(path)
    path.unlink(missing_ok=True)
    # For the fixture's end.
    for checkpoint in host.folder.glob("checkpoint-*"):
        checkpoint.unlink()
    host.open()


def test_a_frame_that_is_missed_is_damage(open_host: Any) -> None:
    """In front of a checkpoint payloads of other kinds are not read, so a frame whose kind has
    rotted into one of those would be passed over.
    """
    host = open_host(limits=SMALL)
    start = host.engine.state.position
    execute(host.engine, host.now_ms, [b"SET", b"a", b"1"])
    host.checkpoint()
    host.engine.close()
    [segment] = (host.folder / "log").glob("*.log")
    raw = bytearray(segment.read_bytes())
    assert raw[start + 5] == FrameKind.KEYSPACE
    raw[start + 5] = FrameKind.SETTLE
    segment.write_bytes(raw)
    with pytest.raises(CorruptionError, match="frames of the keyspace are missing"):
        host.open()
    raw[start + 5] = FrameKind.KEYSPACE
    segment.write_bytes(raw)
    host.open()
    assert host.engine.state.keyspace.databases[0].values == {b"a": b"1"}


# --------------------------------------------------------------------------- expiry


def test_keys_end_by_a_frame_of_the_leader(host: Any) -> None:
    put(host.engine, host.now_ms, b"soon", b"x", host.now_ms + 1_500)
    put(host.engine, host.now_ms, b"stays", b"x")
    host.turn()
    values = host.engine.state.keyspace.databases[0].values
    host.advance(1_499)
    assert b"soon" in values
    frames = host.engine.state.keyspace_base.frames
    host.advance(1)
    assert values == {b"stays": b"x"}
    assert host.engine.state.keyspace_base.frames == frames + 1
    host.restart()
    assert host.engine.state.keyspace.databases[0].values == {b"stays": b"x"}


def test_keys_from_a_snapshot_are_lined_up_in_slices(open_host: Any) -> None:
    host = open_host(limits=SMALL)
    at_ms = b"%d" % (host.now_ms + 5_000)
    for start in range(0, 10_000, 100):
        commands = []
        for number in range(start, start + 100):
            key = b"%d" % number
            commands += [[b"SELECT", b"%d" % (number % 3)], [b"SET", key, b"x"]]
            commands.append([b"PEXPIREAT", key, at_ms])
        execute(host.engine, host.now_ms, *commands)
    assert snapshot(host.engine)
    host.checkpoint()
    host.restart()
    keyspace = host.engine.state.keyspace
    assert sum(len(database.expires) for database in keyspace.databases) == 10_000
    assert keyspace.expiry.hints == 10_000, "the first turn has lined all of them up"
    host.advance(5_001)
    assert not any(database.expires or database.values for database in keyspace.databases[1:3])


# --------------------------------------------------------------------------- members


def test_a_follower_applies_and_leads(host: Any, member: Any) -> None:
    """It expires nothing by itself until it leads, makes its own snapshots, and goes on."""
    put(host.engine, host.now_ms, b"a", b"1")
    host.send(5)
    member.catch_up(host)
    keyspace = member.engine.state.keyspace
    assert contents_of(keyspace) == contents_of(host.engine.state.keyspace)
    assert not keyspace.may_expire
    keyspace.databases[0].set_expiry(b"a", 1)
    assert member.engine.next_wake_ms() is None
    assert keyspace.expiry.hints == 0
    assert snapshot(member.engine)
    member.engine.run_inline(member.engine.upkeep.checkpoint(lambda: host.now_ms))
    [name] = files_in(member.folder)
    assert name == snapshot_name(host.engine.state.log.end_position)

    member.lead_after(host)
    assert keyspace.may_expire
    assert member.engine.next_wake_ms() == 0
    member.engine.run_due(host.now_ms)
    assert not keyspace.databases[0].values, "its time had come"
    assert member.engine.state.position == member.log.end_position
    member.log.write_pending()
    member.commit = member.log.sync()

    member.engine.step_down()
    assert not keyspace.may_expire
    assert keyspace.next_expiry_ms() is None
    member.close()
    member.open()
    member.follow(member.commit)
    assert not member.engine.state.keyspace.databases[0].values


def test_effects_that_find_no_leader_are_not_lost(member: Any, host: Any) -> None:
    """They stay, so the state is known to be ahead of its log."""
    member.lead_after(host)
    state = member.engine.state
    end = state.position
    state.may_append = lambda: False
    with pytest.raises(NotLeadingError):
        put(member.engine, host.now_ms, b"a", b"1")
    assert state.keyspace.effects == [[b"SET", b"a", b"1"]]
    assert state.position == end
    state.may_append = lambda: True
    assert log_keyspace(state, host.now_ms) > end
    assert not state.keyspace.effects
    assert state.keyspace_base.frames == 1


def test_a_retired_leader_expires_nothing(member: Any, host: Any) -> None:
    member.lead_after(host)
    state = member.engine.state
    put(member.engine, host.now_ms, b"a", b"1", host.now_ms + 1)
    state.retire(state.position)
    state.keyspace.now_ms += 10
    assert state.keyspace.databases[0].find(b"a") is None, "it is over"
    assert not state.keyspace.effects, "and nothing of that is to be logged"


def test_a_command_of_the_log_that_is_gone_is_refused_by_name(host: Any) -> None:
    with pytest.raises(OlderFormatError, match="SMOVE"):
        apply_effects(host.engine.state.keyspace, [[b"SMOVE", b"a", b"b", b"x"]])
