"""Backups while a broker works: whatever happens between two reads, the copy is one moment.

Method: the file system that the backup reads through lets the broker live on before every single
call: sends, leases, settles, moves, pages of states, checkpoints, and hours and segments that go.
Reads are cut into small parts, so states are torn wherever they can be. What the broker holds is
written down by log position; the restored folder must hold exactly that of the position at which
its log ends.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from delaylog.broker.backup import copies, folder_copy
from delaylog.broker.backup.copies import BackupError, Manifest, Route
from delaylog.broker.backup.folder_copy import take_backup
from delaylog.broker.backup.restore import restore_backup
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system.folder_lock import newest_backup_s
from delaylog.storage.errors import (
    CorruptionError,
    DiskFailedError,
    DiskFullError,
    OlderFormatError,
)
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import OsFileSystem, ReadOnlyFileSystem
from delaylog.storage.hours.far import run_stack
from delaylog.storage.layout import STATE_ENDED_FIRST
from delaylog.storage.log.frames import KNOWN_LEVEL
from tests.broker.engine.host import HOUR
from tests.broker.verify.damaged_folder import flip
from tests.broker.verify.verifying import verify

T = TypeVar("T")
Held = dict[str, tuple[int, int, int, int]]
"""Living messages: id -> (stored state, due time, attempts, lease)."""


class Between(ReadOnlyFileSystem):
    """Calls `step` before everything that a backup reads."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step

    def open(self, path: str, *, create: bool = False) -> File:
        self._step()
        return FileBetween(super().open(path, create=create), self._step)  # type: ignore[return-value]

    def listdir(self, path: str) -> list[str]:
        self._step()
        return super().listdir(path)

    def exists(self, path: str) -> bool:
        self._step()
        return super().exists(path)


class FileBetween:
    """A file of it."""

    def __init__(self, file: File, step: Callable[[], None]) -> None:
        self._file = file
        self._step = step

    def pread(self, size: int, offset: int) -> bytes:
        self._step()
        return self._file.pread(size, offset)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class Life:
    """A broker that does everything at random, and what it held at each position of its log."""

    def __init__(self, host: Any, seed: int, *, steps: int = 100) -> None:
        self.host = host
        self.rng = random.Random(seed)
        self.ids: list[str] = []
        self.left = steps
        self.seen: dict[int, tuple[int, Held]] = {}
        host.configure(max_retry=2)
        sync = host.sync

        def noted() -> None:
            sync()
            if host.engine.state.log.end_position not in self.seen:
                self.note()

        host.sync = noted
        host.turn()

    def note(self) -> None:
        host = self.host
        self.seen[host.engine.state.log.end_position] = (host.now_ms, held(host, self.ids))

    def step(self) -> None:
        """One thing, as long as there are some left."""
        if self.left > 0:
            self.left -= 1
            calls = [self.send, self.send, self.work, self.work, self.settle_by_id, self.advance]
            self.rng.choice([*calls, self.host.flush, self.host.checkpoint])()

    def send(self) -> None:
        n = self.rng.randrange(1, 12)
        delays = [self.rng.randrange(3 * HOUR) * self.rng.randrange(2) for _ in range(n)]
        ids = [f"m{len(self.ids) + k}" for k in range(n)]
        bodies = [text.encode() * self.rng.randrange(20) for text in ids]
        self.ids += ids
        self.host.send(bodies, delay=delays, ids=ids)

    def work(self) -> None:
        got = self.host.receive(self.rng.randrange(1, 40), lease=self.rng.randrange(1_000, HOUR))
        third = len(got) // 3
        self.host.ack(got[: 2 * third])
        self.host.nack(got[2 * third :][:third], delay=self.rng.choice([0, 1_000, HOUR]))

    def settle_by_id(self) -> None:
        if self.ids:
            some = self.rng.sample(self.ids, min(len(self.ids), 5))
            self.host.cancel(some[:3])
            self.host.reschedule(some[3:], self.host.now_ms + self.rng.randrange(2 * HOUR))

    def advance(self) -> None:
        self.host.advance(self.rng.choice([100, 60_000, HOUR, 2 * HOUR]))


def as_of(seen: dict[int, T], position: int) -> T:
    """What was seen at the last noted position up to one."""
    return seen[max(at for at in seen if at <= position)]


def held(host: Any, ids: list[str]) -> Held:
    """What lives in a broker."""
    out: Held = {}
    for text, found in zip(ids, host.find(ids), strict=True):
        if found is not None and int(found.entry["state"]) < STATE_ENDED_FIRST:
            entry = found.entry
            numbers = (entry["state"], found.row["deliver_at"], entry["attempts"], entry["lease"])
            out[text] = tuple(int(number) for number in numbers)  # type: ignore[assignment]
    return out


def back_up(source: Any, folder: Path, dest: Path, **how: Any) -> Manifest:
    how = {"version": "1", "now_ms": lambda: 5, "sleep": lambda s: None} | how
    return take_backup(Route(source, str(folder), OsFileSystem(), str(dest)), **how)


def restore(backup: Path, folder: Path, *, seed: int = 1) -> Manifest:
    rng = random.Random(seed)
    route = Route(ReadOnlyFileSystem(), str(backup), OsFileSystem(), str(folder))
    return restore_backup(route, now_ms=0, random=rng)


def assert_restores(
    life: Life, host_class: Any, backup: Path, manifest: Manifest, place: Path
) -> None:
    """The backup is sound, and a broker on it holds what the first one held at its end."""
    assert verify(backup).damage == []
    restore(backup, place)
    assert verify(place).damage == []
    # The log may end between the frames of one turn, with leases that end in this millisecond.
    now_ms, before = as_of(life.seen, manifest.end_position)
    host = host_class(place, now_ms=now_ms - 1, hold=False)
    try:
        assert held(host, life.ids) == before
        # It lives on: what is there comes, once each, and new messages get ids of their own.
        host.advance(4 * HOUR)
        got: list[str] = []
        while messages := host.receive(10_000, lease=60_000):
            got += [message.id for message in messages]
            host.ack(messages)
        assert len(got) == len(set(got))
        assert set(got) <= set(before)
    finally:
        host.close()


@pytest.fixture
def torn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Reads of 700 bytes; the list gets an entry for every time a backup begins again."""
    again: list[str] = []
    monkeypatch.setattr(copies, "PART_BYTES", 700)
    empty = folder_copy._empty

    def noted(partial: str) -> None:
        if len(os.listdir(partial)) > 1:
            again.append(partial)
        empty(partial)

    monkeypatch.setattr(folder_copy, "_empty", noted)
    return again


class FarLife(Life):
    """A life in which messages are due hours, days and months ahead, and days go by."""

    def send(self) -> None:
        n = self.rng.randrange(1, 12)
        delays = [self.far_delay() for _ in range(n)]
        ids = [f"m{len(self.ids) + k}" for k in range(n)]
        self.ids += ids
        self.host.send([text.encode() * 9 for text in ids], delay=delays, ids=ids)

    def far_delay(self) -> int:
        return self.rng.randrange(HOUR) + HOUR * self.rng.choice([0, 2, 20, 26, 30, 80, 900, 3_000])

    def settle_by_id(self) -> None:
        if self.ids:
            some = self.rng.sample(self.ids, min(len(self.ids), 8))
            self.host.cancel(some[:4])
            self.host.reschedule(some[4:], self.host.now_ms + self.far_delay())

    def advance(self) -> None:
        self.host.advance(self.rng.choice([60_000, HOUR, 7 * HOUR, 40 * HOUR]))
        self.host.far_work()


@pytest.mark.long
@pytest.mark.parametrize("holding", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_backup_with_far_messages_is_one_moment(
    open_host: Callable[..., Any],
    host_class: Any,
    tmp_path: Path,
    torn: list[str],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    holding: bool,
) -> None:
    """Runs are written, merged and split while the backup is taken; cancels and moves count."""
    monkeypatch.setattr(run_stack, "FAN_IN", 2)
    life = FarLife(open_host(), seed)
    for _ in range(40):
        life.step()
    life.left = 60
    life.send()
    life.host.checkpoint()
    life.host.engine.upkeep.files_pinned = lambda: holding
    manifest = back_up(Between(life.step), life.host.folder, tmp_path / "b")
    assert any(entry.path.startswith("hours/far/") for entry in manifest.files)
    assert life.left < 60, "the broker worked while the backup was taken"
    assert torn == [] or not holding, "nothing was removed"
    assert_restores(life, host_class, tmp_path / "b", manifest, tmp_path / "r")


@pytest.mark.parametrize("holding", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 26])
def test_a_backup_is_one_moment(
    open_host: Callable[..., Any],
    host_class: Any,
    tmp_path: Path,
    torn: list[str],
    seed: int,
    holding: bool,
) -> None:
    """With retention waiting for the backup it goes through at once; without, it begins again."""
    life = Life(open_host(), seed)
    for _ in range(40):
        life.step()
    folder = life.host.folder
    life.host.engine.upkeep.files_pinned = lambda: holding
    began = life.host.engine.state.log.durable_position
    manifest = back_up(Between(life.step), folder, tmp_path / "b")
    assert life.left < 30, "the broker worked while the backup was taken"
    assert manifest.end_position >= began, "all that was acknowledged before is in it"
    if holding:
        assert torn == [], "nothing was removed"
    assert_restores(life, host_class, tmp_path / "b", manifest, tmp_path / "r")


def test_a_backup_of_a_busy_broker_that_removes_files(
    open_host: Callable[..., Any], host_class: Any, tmp_path: Path, torn: list[str]
) -> None:
    """Every file goes as soon as it may: the backup begins again, and is right in the end."""
    life = Life(open_host(), 1, steps=1_000)
    for _ in range(30):
        life.step()
    calls = itertools.count()

    def drop_everything() -> None:
        # Once is enough: one that begins again at each attempt gives up, as the next test says.
        if not torn and next(calls) % 6 == 0:
            life.send()
            life.host.advance(HOUR)
            life.host.ack(life.host.receive(10_000))
            life.host.checkpoint()

    manifest = back_up(Between(drop_everything), life.host.folder, tmp_path / "b")
    assert torn, "it began again"
    assert_restores(life, host_class, tmp_path / "b", manifest, tmp_path / "r")


def test_a_broker_that_always_removes_files_first(
    open_host: Callable[..., Any], tmp_path: Path
) -> None:
    """The backup gives up with a reason, and leaves nothing."""
    life = Life(open_host(), 1)
    life.host.checkpoint()
    calls = itertools.count(1)

    def drop_segments() -> None:
        if next(calls) % 5 == 0:
            for _ in range(3):
                life.host.send([bytes(3_000)], delay=HOUR)
                life.host.checkpoint()

    with pytest.raises(BackupError, match=r"removed before it was copied.*nearly full"):
        back_up(Between(drop_segments), life.host.folder, tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0"]


@pytest.mark.parametrize("end", ["new", "before a checkpoint", "torn", "stopped"])
def test_a_folder_that_nobody_serves(host_class: Any, tmp_path: Path, end: str) -> None:
    life = Life(host_class(tmp_path / "0"), 3)
    if end != "new":
        life.send()
        life.send()
    if end in ("torn", "stopped"):
        life.host.checkpoint()
        life.work()
    life.host.engine.close()
    if end == "torn":
        with max((life.host.folder / "log").iterdir()).open("ab") as file:
            file.write(b"DLLG" + bytes(50))
    manifest = back_up(ReadOnlyFileSystem(), life.host.folder, tmp_path / "b")
    assert newest_backup_s(str(life.host.folder)) == manifest.ended_at_ms / 1_000
    assert_restores(life, host_class, tmp_path / "b", manifest, tmp_path / "r")


@pytest.mark.parametrize("name", ["delay.index", "delay.log", "extents", "log", "checkpoint"])
def test_damage_is_not_backed_up(host_class: Any, tmp_path: Path, name: str) -> None:
    """A flipped bit in what cannot be made again: the backup says where, and leaves nothing."""
    life = Life(host_class(tmp_path / "0"), 2)
    life.host.send([bytes(200)] * 20, delay=HOUR)
    life.host.checkpoint()
    life.send()
    life.send()
    life.host.engine.write_tick(life.host.now_ms)
    life.host.engine.close()
    folder = life.host.folder
    if name == "log":
        # In the first frame behind the checkpoint.
        newest = folder_copy.decode_checkpoint(max(folder.glob("checkpoint-*")).read_bytes())
        assert newest is not None
        position = newest.position
        path = [p for p in sorted((folder / "log").iterdir()) if int(p.stem) <= position][-1]
        at = position - int(path.stem) + 70
    elif name == "checkpoint":
        paths = sorted(folder.glob("checkpoint-*"))
        for other in paths[:-1]:
            other.unlink()
        path, at = paths[-1], 40
    else:
        path = next(folder.glob(f"hours/*/{name}"))
        at = 100
    flip(path, at * 8 + 2)
    with pytest.raises(CorruptionError) as caught:
        back_up(ReadOnlyFileSystem(), folder, tmp_path / "b")
    assert Path(caught.value.path).name == path.name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0"]


class Failing(OsFileSystem):
    """Every write from the n-th on has no space, or fails."""

    def __init__(self, after: int, error: Exception) -> None:
        self.left = after
        self.error = error

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self.spend()
        return FailingFile(super().open(path, create=create), self)  # type: ignore[return-value]

    def mkdir(self, path: str) -> None:
        self.spend()
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self.spend()
        super().rename(source, target)


class FailingFile:
    """A file of it."""

    def __init__(self, file: File, disk: Failing) -> None:
        self._file = file
        self._disk = disk

    def pwritev(self, buffers: Any, offset: int) -> int:
        self._disk.spend()
        return self._file.pwritev(buffers, offset)

    def fdatasync(self) -> None:
        self._disk.spend()
        self._file.fdatasync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("error", [DiskFullError("no space"), DiskFailedError("broken")])
def test_a_disk_that_fills_up_or_fails(
    open_host: Callable[..., Any], tmp_path: Path, error: Exception
) -> None:
    """Wherever it happens: the error is told, nothing is left, and the next try is whole."""
    life = Life(open_host(), 4)
    life.send()
    life.host.checkpoint()
    life.send()
    after = 0
    while True:
        disk = Failing(after, error)
        try:
            how = {"version": "1", "now_ms": lambda: 5}
            source = ReadOnlyFileSystem()
            take_backup(Route(source, str(life.host.folder), disk, str(tmp_path / "b")), **how)
            break
        except type(error):
            assert sorted(path.name for path in tmp_path.iterdir()) == ["0"]
        after += 1
    assert after > 20
    whole = after
    for after in range(1_000):
        disk = Failing(after, error)
        rng = random.Random(1)
        try:
            restore_backup(
                Route(ReadOnlyFileSystem(), str(tmp_path / "b"), disk, str(tmp_path / "r")),
                now_ms=0,
                random=rng,
            )
            break
        except type(error):
            # Only what is copied already may wait for its last renames.
            left = sorted(path.name for path in tmp_path.iterdir())
            assert left == ["0", "b"] or (tmp_path / "r" / "restoring").is_dir()
    assert after > whole / 2
    assert verify(tmp_path / "r").damage == []


def test_ids_given_out_after_the_backup_name_nothing(
    open_host: Callable[..., Any], host_class: Any, tmp_path: Path
) -> None:
    """The old broker went on: its later ids and receipts do not reach the new one's messages."""
    host = open_host()
    host.send(5, delay=HOUR)
    host.checkpoint()
    back_up(ReadOnlyFileSystem(), host.folder, tmp_path / "b")
    host.restart()
    later = host.ids_of(host.send(5, delay=HOUR))
    host.send(1)
    (leased,) = host.receive()
    restore(tmp_path / "b", tmp_path / "r")
    other = host_class(tmp_path / "r", now_ms=host.now_ms, hold=False)
    try:
        mine = other.ids_of(other.send(5, delay=HOUR))
        other.send(1)
        (theirs,) = other.receive()
        assert not set(mine) & set(later)
        assert [other.state_of(text) for text in later] == [None] * 5
        assert other.ack([leased]) == 0
        assert other.ack([theirs]) == 1
    finally:
        other.close()


def test_states_of_far_rows_stay_holes(open_host: Callable[..., Any], tmp_path: Path) -> None:
    """State files are mapped in pieces of 16 MiB: the copies hold no more blocks than needed."""
    host = open_host()
    host.send(3)
    host.ack(host.receive())
    host.checkpoint()
    manifest = back_up(ReadOnlyFileSystem(), host.folder, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r")
    for folder in (host.folder, tmp_path / "b", tmp_path / "r"):
        stat = next(folder.glob("hours/*/state")).stat()
        assert stat.st_size == 16 << 20
        assert stat.st_blocks * 512 < 100_000
    assert manifest.byte_count < 10_000


@pytest.mark.parametrize("place", ["bk", "hours", "log/bk"])
def test_a_restore_removes_only_what_a_restore_has_left(
    open_host: Callable[..., Any], tmp_path: Path, place: str
) -> None:
    """A restore was killed; meanwhile somebody put the backup, or a file, into its folder."""
    life = Life(open_host(), 3)
    life.send()
    life.host.checkpoint()
    folder = tmp_path / "r"
    (folder / "restoring").mkdir(parents=True)
    backup = folder / place
    backup.parent.mkdir(exist_ok=True)
    back_up(ReadOnlyFileSystem(), life.host.folder, backup)
    with pytest.raises(ConfigError, match=f"{backup} is inside {folder}: move the backup outside"):
        restore(backup, folder)
    backup.rename(tmp_path / "b")
    for name in ("letter", "log/app.log", "restoring/letter"):
        letter = folder / name
        letter.parent.mkdir(exist_ok=True)
        letter.write_text("keep me")
        with pytest.raises(ConfigError, match=f"it has '{name}'"):
            restore(tmp_path / "b", folder)
        letter.unlink()
    restore(tmp_path / "b", folder)
    assert verify(folder).sound


@pytest.mark.parametrize("what", ["flip", "cut", "lose"])
def test_a_damaged_backup_is_not_restored(
    open_host: Callable[..., Any], tmp_path: Path, what: str
) -> None:
    """Any file of it, the manifest included: it is named, and no data folder comes to be."""
    life = Life(open_host(), 5)
    life.send()
    life.work()
    life.host.checkpoint()
    life.send()
    back_up(ReadOnlyFileSystem(), life.host.folder, tmp_path / "b")
    paths = [path for path in (tmp_path / "b").rglob("*") if path.is_file() and path.name != "lock"]
    assert len(paths) >= 6
    for path in paths:
        whole = path.read_bytes()
        raw = bytearray(whole)
        if what == "flip":
            at = len(raw) // 2 if path.name != "state" else 3
            raw[at] ^= 1
            path.write_bytes(raw)
        elif what == "cut":
            path.write_bytes(raw[: len(raw) // 2] if path.name != "state" else b"")
        else:
            path.unlink()
        with pytest.raises(BackupError, match=path.name):
            restore(tmp_path / "b", tmp_path / "r")
        assert not (tmp_path / "r").exists()
        path.write_bytes(whole)
    restore(tmp_path / "b", tmp_path / "r")
    assert verify(tmp_path / "r").sound


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_backup_of_another_release_is_not_restored(
    open_host: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: bool,
) -> None:
    life = Life(open_host(), 6)
    life.send()
    if checkpoint:
        life.host.checkpoint()
    back_up(ReadOnlyFileSystem(), life.host.folder, tmp_path / "b")
    monkeypatch.setattr("delaylog.storage.log.frames.FIRST_LEVEL", KNOWN_LEVEL + 1)
    with pytest.raises(OlderFormatError, match="start with an empty data folder"):
        restore(tmp_path / "b", tmp_path / "r")
    assert not (tmp_path / "r").exists()
