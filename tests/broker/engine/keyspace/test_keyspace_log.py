"""Effects as frames: what is more than one holds comes in several, and comes about whole.

Method: frames of some hundred bytes; turns, a transaction and single effects that are larger. The
log is cut behind each of their frames, as a crash leaves it, and the keyspace is then what it was
before or after all of them, on the node itself and on a follower; with and without a checkpoint,
or a snapshot, in their middle. The bytes of a piece, and pieces that are never made whole, are
tested by themselves.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest

from delaylog.broker.cli.dump import _dumper
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.keyspace import keyspace_snapshots
from delaylog.broker.engine.keyspace.keyspace_part import PIECE_SIZE, Pieces, cut, piece_of
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.log_reader import frames_in
from tests.broker.engine.keyspace_work import SMALL, execute
from tests.broker.keyspace.snapshots.contents import contents_of

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
    "one effect": [[b"RPUSH", b"list", *[b"y" * 450] * 4]],
    "a script": [
        [b"EVAL", b"for i = 1, 40 do redis.call('RPUSH', 'l', string.rep('x', i)) end", b"0"]
    ],
    "another database": [[b"SELECT", b"3"], [b"SET", b"large", b"w" * 1700]],
}


def begin(engine: Engine, now_ms: int) -> None:
    """What is there before."""
    execute(engine, now_ms, [b"SET", b"before", b"1"])


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


# ------------------------------------------------------------------------------- pieces

EFFECTS = [[b"SET", b"key", b"value" * 10]]
PACKED: bytes = msgpack.packb(EFFECTS)


def payloads(packed: bytes, most: int) -> list[bytes]:
    return [b"".join(bytes(part) for part in blocks) for blocks in cut(packed, most)]


def take(pieces: Pieces, some: Sequence[bytes], epoch: int = 5) -> list[list[list[bytes]]]:
    return [pieces.take(one, epoch, path="log", position=9) for one in some]


def test_the_bytes() -> None:
    assert payloads(b"abcdefghijklmnop", 16) == [b"abcdefghijklmnop"], "what fits is left alone"
    cuts = payloads(b"abcdefghijklmnopq", 16)
    assert cuts == [
        b"\xc1\0\0\0" + b"\0\0\0\0" + b"\5\0\0\0" + b"abcd",
        b"\xc1\0\0\0" + b"\1\0\0\0" + b"\5\0\0\0" + b"efgh",
        b"\xc1\0\0\0" + b"\2\0\0\0" + b"\5\0\0\0" + b"ijkl",
        b"\xc1\0\0\0" + b"\3\0\0\0" + b"\5\0\0\0" + b"mnop",
        b"\xc1\0\0\0" + b"\4\0\0\0" + b"\5\0\0\0" + b"q",
    ]
    assert [piece_of(one) for one in cuts] == [(index, 5) for index in range(5)]
    assert piece_of(PACKED) is None


@pytest.mark.parametrize("most", [PIECE_SIZE + 1, PIECE_SIZE + 7, len(PACKED) - 1, len(PACKED)])
def test_nothing_counts_before_the_last(most: int) -> None:
    pieces = Pieces()
    cuts = payloads(PACKED, most)
    assert all(len(one) <= most for one in cuts)
    for _ in range(2):
        *before, last = take(pieces, cuts)
        assert before == [[]] * (len(cuts) - 1)
        assert last == EFFECTS
        assert not pieces.begun


def test_what_another_leader_began_is_forgotten() -> None:
    cuts = payloads(PACKED, 30)
    for what in ("an epoch", "a whole one", "pieces"):
        pieces = Pieces()
        take(pieces, cuts[:-1])
        assert pieces.begun
        if what == "an epoch":
            pieces.begin_epoch(5)
            assert pieces.begun, "its own"
            pieces.begin_epoch(6)
            assert not pieces.begun
        elif what == "a whole one":
            assert take(pieces, [PACKED], 6) == [EFFECTS]
        assert take(pieces, cuts, 6)[-1] == EFFECTS


def test_pieces_stand_behind_each_other() -> None:
    first, second, third = payloads(PACKED, PIECE_SIZE + len(PACKED) // 3 + 1)
    for wrong in ([second], [first, third], [first, first], [first, PACKED]):
        with pytest.raises(CorruptionError, match="some are missing in log at 9"):
            take(Pieces(), wrong)
    pieces = Pieces()
    take(pieces, [first])
    with pytest.raises(CorruptionError):
        take(pieces, [second], 6)
