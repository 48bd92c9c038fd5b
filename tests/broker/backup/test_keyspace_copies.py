"""The keyspace in whatever reads the folder: backups, copies to other nodes, verify and dump.

Method: as in test_backup.py, with sets of keys and snapshots among what goes on between two reads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.backup import copies
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem
from tests.broker.backup.test_backup import Between, Life, as_of, back_up, restore
from tests.broker.backup.test_copies import hand_over
from tests.broker.cli.conftest import dump
from tests.broker.engine.keyspace_work import execute, files_in, snapshot
from tests.broker.engine.member import Member
from tests.broker.verify.damaged_folder import flip
from tests.broker.verify.verifying import assert_flips_are_found, verify

SEEDS = range(4)


class KeyLife(Life):
    """A broker that also sets keys; `keys` is what they were at each position of its log."""

    def __init__(self, host: Any, seed: int, *, steps: int = 100) -> None:
        self.keys: dict[int, dict[bytes, Any]] = {}
        super().__init__(host, seed, steps=steps)

    def note(self) -> None:
        super().note()
        end = self.host.engine.state.log.end_position
        self.keys[end] = dict(self.host.engine.state.keyspace.databases[0].values)

    def step(self) -> None:
        if self.left > 0:
            self.rng.choice([super().step, self.set, self.set, self.make_snapshot])()

    def set(self) -> None:
        self.left -= 1
        key = b"k%d" % self.rng.randrange(9)
        execute(self.host.engine, self.host.now_ms, [b"SET", key, self.rng.randbytes(90)])
        self.host.turn()

    def make_snapshot(self) -> None:
        self.left -= 1
        snapshot(self.host.engine)
        if self.rng.random() < 0.5:
            self.host.checkpoint()


@pytest.mark.parametrize("holding", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_backup_holds_the_keys_of_its_end(
    open_host: Callable[..., Any],
    host_class: Any,
    tmp_path: Path,
    seed: int,
    holding: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "PART_BYTES", 700)
    life = KeyLife(open_host(), seed)
    for _ in range(30):
        life.step()
    life.host.engine.upkeep.files_pinned = lambda: holding
    manifest = back_up(Between(life.step), life.host.folder, tmp_path / "b")
    assert verify(tmp_path / "b").damage == []
    restore(tmp_path / "b", tmp_path / "r")
    assert verify(tmp_path / "r").damage == []
    assert verify(life.host.folder).damage == []
    host = host_class(tmp_path / "r", now_ms=life.host.now_ms)
    try:
        found = host.engine.state.keyspace.databases[0].values
        assert found == as_of(life.keys, manifest.end_position)
        execute(host.engine, host.now_ms, [b"SET", b"k", b"on"])
        assert snapshot(host.engine)
        host.checkpoint()
        host.restart()
        assert host.engine.state.keyspace.databases[0].values[b"k"] == b"on"
    finally:
        host.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_blank_node_gets_them(
    host: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over an old folder with snapshots of another time; then it follows as if it always had."""
    monkeypatch.setattr(copies, "PART_BYTES", 700)
    life = KeyLife(host, seed, steps=60)
    while life.left:
        life.step()
    life.set()
    snapshot(host.engine)
    life.set()
    host.checkpoint(2)
    folder = tmp_path / "member"
    (folder / FOLDER).mkdir(parents=True)
    (folder / FOLDER / f"{7:020d}.snapshot").write_bytes(b"old")
    host.engine.upkeep.files_pinned = lambda: True
    life.left = 60
    manifest = hand_over(life, folder)
    assert f"{7:020d}.snapshot" not in files_in(folder)
    assert len(files_in(folder)) == 1
    member = Member(folder, host.now_ms)
    try:
        member.follow(manifest.end_position)
        values = member.engine.state.keyspace.databases[0].values
        assert values == as_of(life.keys, manifest.end_position)
        life.set()
        host.sync()
        log = host.engine.state.log
        member.copy(log, log.end_position)
        member.follow(log.end_position)
        assert values == host.engine.state.keyspace.databases[0].values
        assert snapshot(member.engine)
    finally:
        member.close()


@pytest.fixture
def left(open_host: Callable[..., Any]) -> Path:
    """A folder with a snapshot, frames in front of the checkpoint, and some behind it."""
    host = open_host()
    for turn in range(3):
        execute(host.engine, host.now_ms, [b"SET", b"a b%d" % turn, b"x" * 100])
        if turn == 1:
            assert snapshot(host.engine)
        host.checkpoint()
    execute(host.engine, host.now_ms, [b"SET", b"late", b"\xff"], [b"SELECT", b"3"])
    host.restart()
    folder: Path = host.folder
    return folder


def test_every_flipped_bit_of_a_snapshot_is_found(left: Path) -> None:
    [name] = files_in(left)
    assert_flips_are_found(left, left / FOLDER / name, 3)


def test_a_snapshot_that_is_missing_is_damage(left: Path, tmp_path: Path) -> None:
    [name] = files_in(left)
    (left / FOLDER / name).rename(tmp_path / "aside")
    (left / FOLDER / f"{9:020d}.snapshot.0.tmp").write_bytes(b"half")
    report = verify(left)
    assert {found.path for found in report.damage} == {f"{FOLDER}/{name}"}
    assert [found.path for found in report.notes if found.path.startswith(FOLDER)]
    with pytest.raises(CorruptionError, match="a snapshot is missing"):
        back_up(ReadOnlyFileSystem(), left, tmp_path / "b")
    (tmp_path / "aside").rename(left / FOLDER / name)


def test_log_that_the_keyspace_needs_is_missed(left: Path) -> None:
    """The frames that a checkpoint counts have to be there."""
    for path in sorted(left.glob("checkpoint-*"))[-1:]:
        raw = path.read_bytes()
        assert raw
    [segment] = sorted((left / "log").iterdir())
    raw = bytearray(segment.read_bytes())
    base = int(segment.stem)
    position = int(files_in(left)[0][:20])
    at = position - base
    while raw[at + 5] != 12:
        at += 64 + int.from_bytes(raw[at + 8 : at + 12], "little")
    segment.write_bytes(raw[:at] + raw[at:].replace(b"DLLG", b"DLL?", 1))
    assert any(found.path.startswith("log") for found in verify(left).damage)
    segment.write_bytes(raw)


@pytest.mark.processes
def test_dump_shows_frames_and_snapshots(left: Path) -> None:
    lines = [line for path in sorted((left / "log").iterdir()) for line in dump(path)]
    effects = [line["effects"] for line in lines if line["kind"] == "KEYSPACE"]
    assert effects[-1] == [r"SET late \xff"]
    assert effects[0] == ["SET 'a b0' " + "x" * 64 + "…"]
    [name] = files_in(left)
    head, values, end = dump(left / FOLDER / name)
    assert head == {"position": int(name[:20])}
    assert values | {"offset": 0, "bytes": 0} == {
        "offset": 0,
        "bytes": 0,
        "what": "VALUES",
        "database": 0,
        "type": "string",
        "keys": 2,
        "volatile": 0,
    }
    assert (end["what"], end["keys"], end["libraries"]) == ("END", 2, 0)
    flip(left / FOLDER / name, 50 * 8)
    assert "error" in dump(left / FOLDER / name, 1)[-1]
