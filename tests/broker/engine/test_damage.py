"""One flipped bit anywhere in a data folder: it is named, and nothing wrong comes of it.

Method: a folder with everything in it (damaged_folder.py) is copied, one bit is flipped, `verify`
has to name the file, and a broker opened on the copy has to hand out exactly what it hands out of
the undamaged folder, or to stop with an error that names the file. Fields of records are tried
one by one, other places at random by a seed. Durability is not the subject: syncs do nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import lmdb
import pytest

from delaylog.storage.errors import CorruptionError, DiskFailedError
from delaylog.storage.file_system import OsFile, OsFileSystem
from delaylog.storage.layout import (
    MessageState,
)
from tests.broker.engine.damaged_folder import (
    Seen,
    copy_folder,
    files,
    flip,
    make,
    places,
    serve,
    verify,
)

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

    def serve(self, name: Path, bit: int, *, ids_may_miss: bool = False) -> str:
        """A broker on a copy with that bit flipped: "right", or where it said the damage is.

        "missed" when ids were not found and everything else was right.
        """
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
        except DiskFailedError as error:
            # A rotten page number of LMDB leads a write to nowhere: the system calls that an I/O
            # error, and so does the broker.
            assert seen.agrees(self.expected), (name, bit)
            said = str(copy / "ids" / "data.mdb") in str(error)
            return "ids/data.mdb" if said else "nothing"
        assert seen.delivered == self.expected.delivered, (name, bit)
        if ids_may_miss and seen.found != self.expected.found:
            wrong = [key for key in seen.found if seen.found[key] != self.expected.found[key]]
            assert all(seen.found[key] is None for key in wrong), (name, bit, wrong)
            return "missed"
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
    ],
)
def test_one_flipped_bit(damaged: Damaged, kind: str, step: int, stops: bool) -> None:
    """Named by verify; a broker shows what is right or stops and names the file."""
    outcomes = try_flips(damaged, kind, count=4, seed=1, step=step)
    assert (outcomes["stopped"] > 0) == stops, outcomes


@pytest.mark.drill
@pytest.mark.parametrize(
    "kind",
    ["log", "checkpoint", "tick", "second.index", "delay.log", "delay.index", "extents", "state"],
)
def test_many_flipped_bits(damaged: Damaged, kind: str) -> None:
    for seed in range(2):
        try_flips(damaged, kind, count=10, seed=seed)


# --------------------------------------------------------------------------- the id index


def in_a_child(call: Callable[[], str]) -> str:
    """What a call returns, in a process of its own: LMDB may take its process with it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, call().encode())
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "crashed"
    assert status == 0, "see above"
    return said


def entries_of(folder: Path) -> dict[bytes, bytes]:
    """Everything that the id index says."""
    with lmdb.open(str(folder / "ids"), readonly=True, lock=False) as env, env.begin() as txn:
        return dict(txn.cursor())


def flip_ids(damaged: Damaged, count: int, seed: int) -> Counter[str]:
    name = Path("ids/data.mdb")
    size = (damaged.folder / name).stat().st_size
    entries = entries_of(damaged.folder)
    random = Random(seed)
    # Fields of both meta pages and of a page's head, then anything.
    bytes_ = [4096 * page + at for page in (0, 1) for at in range(16, 152, 8)]
    bytes_ += [4096 * page + at for page in range(2, size // 4096) for at in (0, 10, 12, 14, 16)]
    bytes_ = random.sample(bytes_, min(count // 2, len(bytes_)))
    bytes_ += [random.randrange(size) for _ in range(count - len(bytes_))]
    outcomes: Counter[str] = Counter()
    for at in bytes_:
        bit = at * 8 + random.randrange(8)
        bad, _ = damaged.verified(name, bit)

        def say(bit: int = bit) -> str:
            return damaged.serve(name, bit, ids_may_miss=True)

        def same(bit: int = bit) -> str:
            flip(damaged.folder / name, bit)
            return str(entries_of(damaged.folder) == entries)

        if bad:
            assert bad == {name.as_posix()}, (bit, bad)
        else:
            # Space that says nothing: LMDB reads the same entries, and so does the broker.
            assert in_a_child(same) == "True", bit
            flip(damaged.folder / name, bit)
        said = in_a_child(say)
        # An id whose key rotted is not found: LMDB has no checksum that could tell (DURABILITY.md).
        assert said in ("right", name.as_posix(), "crashed", "missed"), (bit, said)
        assert bad or said == "right", (bit, said)
        outcomes[said] += 1
    return outcomes


def test_flipped_bits_of_the_id_index(damaged: Damaged) -> None:
    outcomes = flip_ids(damaged, 40, seed=2)
    assert outcomes["right"] > 0
    assert outcomes["ids/data.mdb"] + outcomes["right"] > 30, outcomes


@pytest.mark.drill
def test_many_flipped_bits_of_the_id_index(damaged: Damaged) -> None:
    print(flip_ids(damaged, 300, seed=3))


def test_a_damaged_id_index_is_made_anew(damaged: Damaged) -> None:
    """A value that rotted stops the node once; the next start begins an empty index."""
    index = damaged.folder / "ids" / "data.mdb"
    origin = damaged.expected.found["first t i0"]
    assert origin is not None
    value = origin[0].to_bytes(8, "little")
    raw = index.read_bytes()
    # Older versions of the page stand in the file too.
    found = [at for at in range(len(raw)) if raw.startswith(value, at)]
    first = Seen()
    copy = damaged.scratch / "again"
    copy_folder(damaged.folder, copy)
    for at in found:
        flip(copy / "ids" / "data.mdb", at * 8 + 3)
    with pytest.raises(CorruptionError, match="a restart makes the id index anew") as caught:
        serve(damaged.host_class, copy, damaged.now_ms, first)
    assert caught.value.path == f"{copy}/ids/data.mdb"
    assert "ids/data.mdb" in {finding.path for finding in verify(copy).damage}
    again = Seen()
    serve(damaged.host_class, copy, damaged.now_ms, again)
    assert again.delivered == damaged.expected.delivered
    # Rows that this start made carry its epoch, one later than the expected ones.
    unknown = {key for key, found in again.found.items() if found is None}
    assert unknown == {key for key, found in damaged.expected.found.items() if found is None}
    assert (copy / "ids.damaged" / "data.mdb").exists()
    assert verify(copy).damage == []


@pytest.mark.parametrize("bit", range(5, 128 * 8, 93))
def test_rot_does_not_pass_for_a_removal(host_class: type, tmp_path: Path, bit: int) -> None:
    """All messages of an hour have ended, and its first extent rots: its dead ones are not lost."""
    host = host_class(tmp_path / "data")
    host.configure(max_retry=0)
    name = host.ids_of(host.send(3, delay=0))[0]
    host.nack(host.receive())
    host.checkpoint()
    host.checkpoint()
    host.engine.write_tick(host.now_ms)
    host.close()
    [path] = (host.folder / "hours").glob("*/extents")
    flip(path, bit)
    assert f"hours/{path.parent.name}/extents" in {at.path for at in verify(host.folder).damage}
    with pytest.raises(CorruptionError, match="extents"):
        host._open()
    flip(path, bit)
    host._open()
    assert host.state_of(name) is MessageState.DEAD
    host.close()
