"""Effects as frames: what is more than one holds comes in several, and comes about whole.

Method: frames of some hundred bytes; turns, a transaction and single effects that are larger. The
log is cut behind each of their frames, as a crash leaves it, and the keyspace is then what it was
before or after all of them, on the node itself and on a follower; with and without a checkpoint,
or a snapshot, in their middle.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.cli.dump import _dumper
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.keyspace import keyspace_snapshots
from delaylog.broker.engine.keyspace.keyspace_part import KeyspaceBase, Pieces, piece_of
from delaylog.broker.engine.keyspace.keyspace_snapshots import log_keyspace
from delaylog.broker.engine.limits import Limits
from delaylog.broker.keyspace.effects import apply_effects
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.log_reader import frames_in
from tests.broker.engine.keyspace_work import execute
from tests.broker.keyspace.snapshots.contents import contents_of

SMALL = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)
FRAME_BYTES = 500


@pytest.fixture(autouse=True)
def _small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyspace_snapshots, "PAYLOAD_BYTES_MAX", FRAME_BYTES)


LARGE: dict[str, list[list[bytes]]] = {
    "a transaction": [
        [b"MULTI"],
        *[[b"SET", b"key %d" % number, b"v" * 90] for number in range(12)],
        [b"DEL", b"before"],
        [b"EXEC"],
    ],
    "one effect": [
        [b"RPUSH", b"list", *[b"y" * 450] * 4],
    ],
    "a script": [
        [b"EVAL", b"for i = 1, 40 do redis.call('RPUSH', 'l', string.rep('x', i)) end", b"0"]
    ],
    "another database": [[b"SELECT", b"3"], [b"SET", b"large", b"w" * 1700]],
}


def begin(engine: Engine, now_ms: int) -> None:
    """What is there before."""
    execute(
        engine,
        now_ms,
        [b"SET", b"before", b"1"],
    )


def frame_ends(engine: Engine, start: int) -> list[int]:
    """Where the frames behind a position end, all of the keyspace."""
    log = engine.state.log
    data = log.read(start, log.end_position - start)
    found = list(frames_in(data, start))
    assert {frame.header.kind for frame in found} == {FrameKind.KEYSPACE}
    assert [piece_of(frame.payload) for frame in found] == [
        (index, len(found)) for index in range(len(found))
    ]
    return [frame.end for frame in found]


def crashed_copy(folder: Path, target: Path, end: int) -> None:
    """The folder as a crash leaves it that let the log get so far."""
    shutil.copytree(folder, target)
    [segment] = (target / "log").iterdir()
    with segment.open("r+b") as file:
        file.truncate(end)
    (target / "tick").unlink(missing_ok=True)


def open_copy(folder: Path, now_ms: int) -> Engine:
    return Engine(OsFileSystem(), str(folder), Setup(random=Random(1), limits=SMALL), now_ms=now_ms)


@pytest.mark.parametrize("what", LARGE)
def test_a_crash_between_the_frames_leaves_all_or_nothing(
    host: Any, tmp_path: Path, what: str
) -> None:
    begin(host.engine, host.now_ms)
    host.sync()
    before, start = contents_of(host.engine.state.keyspace), host.engine.state.log.end_position
    execute(host.engine, host.now_ms, *LARGE[what])
    host.sync()
    after, ends = contents_of(host.engine.state.keyspace), frame_ends(host.engine, start)
    assert len(ends) > 2
    for at, end in enumerate([start, *ends]):
        for torn in (0, 1):
            folder = tmp_path / f"{at}-{torn}"
            crashed_copy(host.folder, folder, end - torn)
            whole = at == len(ends) and not torn
            if at == 0 and torn:
                continue
            engine = open_copy(folder, host.now_ms)
            assert contents_of(engine.state.keyspace) == (after if whole else before)
            assert not engine.state.keyspace_pieces.begun, "its own epoch has begun"
            # And life goes on: what was begun is in nobody's way.
            execute(engine, host.now_ms, [b"SET", b"more", b"z" * 2 * FRAME_BYTES])
            engine.run_inline(engine.upkeep.checkpoint(lambda: host.now_ms))
            engine.run_inline(engine.upkeep.snapshots.work(lambda: host.now_ms))
            assert engine.upkeep.snapshots.made == 1
            engine.run_inline(engine.upkeep.checkpoint(lambda: host.now_ms))
            now = contents_of(engine.state.keyspace)
            engine.close()
            engine = open_copy(folder, host.now_ms)
            assert contents_of(engine.state.keyspace) == now
            assert engine.state.keyspace.databases[0].values[b"more"] == b"z" * 2 * FRAME_BYTES
            engine.close()


@pytest.mark.parametrize("what", LARGE)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_follower_shows_them_when_they_are_whole(
    host: Any, member: Any, what: str, *, checkpoint: bool
) -> None:
    begin(host.engine, host.now_ms)
    host.sync()
    theirs = host.engine.state.log
    before, start = contents_of(host.engine.state.keyspace), theirs.end_position
    execute(host.engine, host.now_ms, *LARGE[what])
    host.sync()
    after = contents_of(host.engine.state.keyspace)
    member.copy(theirs, theirs.end_position)
    *between, last = frame_ends(host.engine, start)
    for end in between:
        member.follow(end)
        assert contents_of(member.engine.state.keyspace) == before
        assert not member.engine.upkeep.snapshots.due(host.now_ms, short_of_space=False)
        member.engine.run_inline(member.engine.upkeep.snapshots.work(lambda: host.now_ms))
        assert member.engine.upkeep.snapshots.made == 0, "it would hold a part of them"
        if checkpoint:
            member.engine.run_inline(member.engine.upkeep.checkpoint(lambda: host.now_ms))
            member.engine.close()
            member.make_engine()
            assert member.engine.state.position == end
    member.follow(last)
    assert contents_of(member.engine.state.keyspace) == after
    member.engine.run_inline(member.engine.upkeep.snapshots.work(lambda: host.now_ms))
    assert member.engine.upkeep.snapshots.made == 1


@pytest.mark.parametrize("checkpoint", [False, True])
def test_whoever_leads_next_does_not_make_them_whole(
    host: Any, member: Any, *, checkpoint: bool
) -> None:
    """Only a part of them was committed when their leader was gone."""
    begin(host.engine, host.now_ms)
    host.sync()
    theirs = host.engine.state.log
    before, start = contents_of(host.engine.state.keyspace), theirs.end_position
    execute(host.engine, host.now_ms, *LARGE["a transaction"])
    host.sync()
    cut = frame_ends(host.engine, start)[1]
    member.log.append_raw(theirs.read(0, cut))
    member.log.write_pending()
    member.log.sync()
    member.log.cut(cut)
    member.follow(cut)
    assert member.engine.state.keyspace_pieces.begun
    if checkpoint:
        member.engine.run_inline(member.engine.upkeep.checkpoint(lambda: host.now_ms))
        member.engine.close()
        member.make_engine()
        assert member.engine.state.keyspace_pieces.begun
    member.lead(host.now_ms)
    assert not member.engine.state.keyspace_pieces.begun
    assert contents_of(member.engine.state.keyspace) == before
    execute(member.engine, host.now_ms, *LARGE["one effect"])
    after = contents_of(member.engine.state.keyspace)
    member.log.write_pending()
    member.commit = member.log.sync()
    member.engine.close()
    member.make_engine()
    member.follow(member.commit)
    assert contents_of(member.engine.state.keyspace) == after


def test_a_dump_says_which_piece_it_is(host: Any) -> None:
    begin(host.engine, host.now_ms)
    execute(host.engine, host.now_ms, *LARGE["another database"])
    host.restart()
    [path] = (host.folder / "log").iterdir()
    file = OsFileSystem().open(str(path))
    try:
        lines = [line for line in _dumper(path)(file, path) if line["kind"] == "KEYSPACE"]
    finally:
        file.close()
    pieces = [(line["piece"], line["of"]) for line in lines if "piece" in line]
    assert pieces[-4:] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_what_is_more_than_a_frame_comes_in_several() -> None:
    """Whatever effects there are, one frame's worth or more, they bring about the same."""
    keyspace, copy, pieces = Keyspace(Random(1)), Keyspace(Random(2)), Pieces()
    payloads: list[bytes] = []
    state: Any = SimpleNamespace(
        keyspace=keyspace,
        keyspace_base=KeyspaceBase(),
        position=0,
        append=lambda _kind, parts, _now_ms: payloads.append(b"".join(map(bytes, parts))),
    )
    executor = Executor(keyspace)
    session = executor.connect(0)
    executor.execute(session, [b"SELECT", b"3"])
    members = [b"member %d" % number for number in range(300)]
    for commands in (
        *([[b"SADD", b"set", *members[start : start + 50]]] for start in range(0, 300, 50)),
        [[b"RPUSH", b"list", *members], [b"SET", b"between", b"1"]],
        [[b"SPOP", b"set", b"290"], [b"RPUSH", b"list", b"last"]],
        [[b"SET", b"key %d" % number, b"value"] for number in range(100)],
    ):
        for argv in commands:
            executor.execute(session, argv)
        log_keyspace(state, 0)
        assert not keyspace.effects
    assert len(payloads) > 12
    assert state.keyspace_base.frames == len(payloads)
    assert state.keyspace_base.bytes == sum(map(len, payloads))
    for payload in payloads:
        assert len(payload) <= FRAME_BYTES
        apply_effects(copy, pieces.take(payload, 1, path="log", position=0))
    assert contents_of(copy) == contents_of(keyspace)
    assert len(copy.databases[3].values) == 103
