"""Schedules in whatever reads the folder: backups, copies to other nodes, verify.

Method: as in test_keyspace_copies.py, with schedules that are put, changed and dropped, and that
fire, among what goes on between two reads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from delaylog.broker.backup import copies
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.schedules import commands
from delaylog.broker.engine.schedules.table import FOLDER
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem, ReadOnlyFileSystem
from tests.broker.backup.test_backup import Between, Life, as_of, back_up, restore
from tests.broker.backup.test_copies import hand_over
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.broker.engine.schedules.test_replay import rows
from tests.broker.verify.verifying import assert_flips_are_found, verify


class ScheduleLife(Life):
    """A broker that also has schedules; `tables` is what they were at each position of its log."""

    def __init__(self, host: Any, seed: int, *, steps: int = 60) -> None:
        self.tables: dict[int, dict[int, bytes]] = {}
        super().__init__(host, seed, steps=steps)

    def note(self) -> None:
        super().note()
        end = self.host.engine.state.log.end_position
        self.tables[end] = rows(self.host.engine)

    def step(self) -> None:
        if self.left > 0:
            self.rng.choice([super().step, self.put, self.put, self.drop, self.keep])()

    def put(self) -> None:
        self.left -= 1
        host, name = self.host, f"s{self.rng.randrange(9)}"
        members = {"interval_ms": self.rng.choice((60_000, 7_200_000))}
        body = self.rng.randbytes(self.rng.randrange(300))
        commands.put_schedule(host.engine.state, host.topic, name, members, body, host.now_ms)
        host.turn()

    def drop(self) -> None:
        self.left -= 1
        host = self.host
        found = list(commands.list_schedules(host.engine.state, host.topic))
        if found:
            commands.drop_schedule(host.engine.state, self.rng.choice(found), host.now_ms)
            host.turn()

    def keep(self) -> None:
        self.left -= 1
        self.host.checkpoint()


def table_in(folder: Path) -> dict[int, bytes]:
    """The schedules of a folder, before anything fires."""
    engine = Engine(OsFileSystem(), str(folder), Setup(Random(7)), now_ms=0)
    found = rows(engine)
    engine.close()
    return found


@pytest.mark.parametrize("holding", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_backup_has_the_schedules_of_its_end(
    open_host: Callable[..., Any],
    tmp_path: Path,
    seed: int,
    holding: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the files that it copies grow."""
    monkeypatch.setattr(copies, "PART_BYTES", 700)
    life = ScheduleLife(open_host(), seed)
    life.host.engine.upkeep.files_pinned = lambda: holding
    manifest = back_up(Between(life.step), life.host.folder, tmp_path / "b")
    assert verify(tmp_path / "b").damage == []
    restore(tmp_path / "b", tmp_path / "place")
    assert table_in(tmp_path / "place") == as_of(life.tables, manifest.end_position)


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_for_another_node_has_the_schedules(
    open_host: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    """It replaces what the folder had, files of other schedules too."""
    life = ScheduleLife(open_host(), seed)
    old = ScheduleHost(tmp_path / "place")
    old.put("old", b"x", cron="0 9 * * *")
    old.checkpoint(2)
    old.close()
    manifest = hand_over(life, tmp_path / "place")
    assert table_in(tmp_path / "place") == as_of(life.tables, manifest.end_position)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A folder with schedules in files, and one in the log only."""
    host = ScheduleHost(tmp_path / "data")
    for at in range(3):
        host.put(f"s{at}", b"x" * 50, cron="0 9 * * *")
    host.checkpoint(2)
    host.put("late", b"y", cron="0 9 * * *")
    host.sync()
    host.close()
    return tmp_path / "data"


@pytest.mark.parametrize("suffix", ["rows", "definitions"])
def test_every_flipped_bit_is_found(left: Path, suffix: str) -> None:
    """In the file, at the block or the record."""
    [path] = (left / FOLDER).glob(f"*.{suffix}")
    assert_flips_are_found(left, path, 7)


@pytest.mark.parametrize("suffix", ["rows", "definitions"])
def test_a_file_that_is_missing_is_damage(left: Path, tmp_path: Path, suffix: str) -> None:
    """A backup cannot be made of it."""
    [path] = (left / FOLDER).glob(f"*.{suffix}")
    path.rename(tmp_path / "aside")
    [found] = verify(left).damage
    assert found.path == f"{FOLDER}/{path.name}"
    with pytest.raises(CorruptionError, match="a file of schedules is missing"):
        back_up(ReadOnlyFileSystem(), left, tmp_path / "b")
