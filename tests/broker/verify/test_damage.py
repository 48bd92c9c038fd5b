"""One flipped bit anywhere in a data folder: it is named, and nothing wrong comes of it.

Method: a folder with everything in it (damaged_folder.py) is copied, one bit is flipped, `verify`
has to name the file, and a broker opened on the copy has to hand out exactly what it hands out of
the undamaged folder, or to stop with an error that names the file. Fields of records are tried
one by one, other places at random by a seed. Durability is not the subject: syncs do nothing.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFile, OsFileSystem
from delaylog.storage.layout import (
    MessageState,
)
from tests.broker.verify.damaged_folder import (
    Seen,
    copy_folder,
    files,
    flip,
    make,
    places,
    serve,
)
from tests.broker.verify.verifying import verify

HOUR_FILES = ("delay.log", "delay.index", "extents", "second.index", "state")


@dataclass
class Damaged:
    """The folder, the broker's time, and what an undamaged broker shows."""

    folder: Path
    now_ms: int
    expected: Seen
    host_class: type
    scratch: Path

    def paths(self, kind: str) -> list[Path]:
        return [path for found, path in files(self.folder) if found == kind]

    def serve(self, name: Path, bit: int) -> str:
        """A broker on a copy with that bit flipped: "right", or where it said the damage is."""
        copy = self.scratch / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy_folder(self.folder, copy)
        flip(copy / name, bit)
        seen = Seen()
        try:
            serve(self.host_class, copy, self.now_ms, seen)
        except CorruptionError as error:
            assert seen.agrees(self.expected), (name, bit)
            return Path(error.path).relative_to(copy).as_posix()
        assert seen.delivered == self.expected.delivered, (name, bit)
        assert seen.found == self.expected.found, (name, bit)
        return "right"

    def verified(self, name: Path, bit: int) -> tuple[set[str], set[str]]:
        """Files that `verify` calls damaged, and those it has a note about."""
        flip(self.folder / name, bit)
        report = verify(self.folder)
        flip(self.folder / name, bit)
        return {finding.path for finding in report.damage}, {note.path for note in report.notes}


@pytest.fixture
def damaged(tmp_path: Path, host_class: type, monkeypatch: pytest.MonkeyPatch) -> Damaged:
    monkeypatch.setattr(OsFile, "fdatasync", lambda self: None)
    monkeypatch.setattr(OsFileSystem, "sync_folder", lambda self, path: None)
    folder = tmp_path / "folder"
    now_ms = make(host_class(folder))
    report = verify(folder)
    assert report.damage == []
    copy_folder(folder, tmp_path / "sound")
    expected = Seen()
    serve(host_class, tmp_path / "sound", now_ms, expected)
    kinds = Counter(found[3] for found in expected.delivered.values())
    assert kinds["t"] > 30
    assert kinds["u"] > 30
    assert sum(found is not None for found in expected.found.values()) > 100
    return Damaged(folder, now_ms, expected, host_class, tmp_path)


def try_flips(damaged: Damaged, kind: str, count: int, seed: int, step: int = 1) -> Counter[str]:
    """Flip bits of every file of a kind; returns how often each outcome was seen."""
    random = Random(f"{kind} {seed}")
    outcomes: Counter[str] = Counter()
    for name in damaged.paths(kind):
        for at in places(kind, damaged.folder / name, random, count)[seed % step :: step]:
            bit = at * 8 + random.randrange(8)
            bad, noted = damaged.verified(name, bit)
            place = name.as_posix()
            if place not in bad:
                # Behind the checkpoint a start cuts an hour's files and replays the log.
                assert kind in HOUR_FILES, (place, bit)
                assert place in noted, (place, bit)
                outcomes["note"] += 1
            where = damaged.serve(name, bit)
            if place not in bad:
                assert where == "right", (place, bit)
            assert where in ("right", place), (place, bit, where)
            outcomes["right" if where == "right" else "stopped"] += 1
    assert outcomes["right"] + outcomes["stopped"] > 5
    return outcomes


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "step", "stops"),
    [
        ("log", 2, True),
        ("checkpoint", 2, False),
        ("tick", 2, False),
        ("second.index", 2, False),
        ("delay.log", 1, True),
        ("delay.index", 3, True),
        ("extents", 3, True),
        ("state", 3, True),
        ("ids", 1, False),
    ],
)
def test_one_flipped_bit(damaged: Damaged, kind: str, step: int, stops: bool) -> None:
    """Named by verify; a broker shows what is right or stops and names the file."""
    outcomes = try_flips(damaged, kind, count=4, seed=1, step=step)
    assert (outcomes["stopped"] > 0) == stops, outcomes


@pytest.mark.drill
@pytest.mark.parametrize("kind", ["log", "checkpoint", "tick", "ids", *HOUR_FILES])
def test_many_flipped_bits(damaged: Damaged, kind: str) -> None:
    for seed in range(2):
        try_flips(damaged, kind, count=10, seed=seed)


def test_a_damaged_id_index_is_made_anew(damaged: Damaged) -> None:
    """A start finds the ref that rotted, and all ids are found again, from the rows."""
    origin = damaged.expected.found["first t i0"]
    assert origin is not None
    value = origin[0].to_bytes(8, "little")
    copy = damaged.scratch / "again"
    copy_folder(damaged.folder, copy)
    (run,) = (path for path in (copy / "ids").glob("*.ids") if value in path.read_bytes())
    flip(run, run.read_bytes().index(value) * 8 + 3)
    name = run.relative_to(copy).as_posix()
    assert {finding.path for finding in verify(copy).damage} == {name}
    seen = Seen()
    serve(damaged.host_class, copy, damaged.now_ms, seen)
    assert seen == damaged.expected
    assert verify(copy).damage == []


@pytest.mark.parametrize("bit", range(5, 128 * 8, 93))
def test_rot_does_not_pass_for_a_removal(host_class: type, tmp_path: Path, bit: int) -> None:
    """All messages of an hour have ended, and its first extent rots: its dead ones are not lost."""
    host = host_class(tmp_path / "data")
    host.configure(max_retry=0)
    name = host.ids_of(host.send(3, delay=0))[0]
    host.nack(host.receive())
    host.checkpoint(2)
    host.engine.write_tick(host.now_ms)
    host.close()
    [path] = (host.folder / "hours").glob("*/extents")
    flip(path, bit)
    assert f"hours/{path.parent.name}/extents" in {at.path for at in verify(host.folder).damage}
    with pytest.raises(CorruptionError, match="extents"):
        host.open()
    flip(path, bit)
    host.open()
    assert host.state_of(name) is MessageState.DEAD
    host.close()
