"""The folder of a copy: checked before it counts, and the old one or the new one after any kill.

Method: a fake disk is killed in every single operation of a whole copy and its installation, and
forgets by each rule what was not synced; then the next start does what it does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crc32c import crc32c

from delaylog.broker.backup.copies import MANIFEST, BackupError, FileEntry, Manifest
from delaylog.broker.cluster.copies.damaged_files import note_damage, set_aside
from delaylog.broker.cluster.copies.incoming_folder import IncomingFolder, contents_of, install
from delaylog.replication.configuration import CLUSTER_ID_SIZE
from delaylog.replication.meta import META, Meta, MetaFile
from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.tick_slots import TickRecord, TickSlots
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival

HOUR = "hours/2021-05-01T05Z"
OLD = {
    "d/log/00000000000000000000.log": b"old log",
    "d/log/00000000000000000100.log": b"old log, later",
    f"d/{HOUR}/delay.index": b"old rows",
    "d/hours/far/3.run": b"old rows of far hours",
    "d/tick": b"old tick",
    "d/checkpoint-8": b"old checkpoint",
    "d/checkpoint-9": b"newer checkpoint",
    "d/ids/index": b"old ids",
}
KEPT = {"d/meta": b"promise", "d/vote": b"vote", "d/lock": b"", "d/damaged-x/log": b"aside"}
NEW = {
    "log/00000000000000000500.log": b"new log" * 100,
    f"{HOUR}/delay.index": b"new rows",
    f"{HOUR}/state": b"\0\0some\0\0",
    "hours/far/7.run": b"new rows of far hours",
    "checkpoint-9": b"new checkpoint",
}
RECORD = TickRecord(0x20001, Tick(5, 6, 7), 1_200, 8)


def manifest_of(files: dict[str, bytes]) -> bytes:
    entries = [
        FileEntry(name, len(data), crc32c(data), 100 if name.endswith("state") else 0)
        for name, data in files.items()
    ]
    return Manifest("1", "d", 5, position=500, end_position=1_200, files=entries).encode()


def old_disk() -> FakeDisk:
    disk = FakeDisk()
    for path, data in (OLD | KEPT).items():
        disk.mkdir(path.rpartition("/")[0])
        disk.put(path, data)
    return disk


def write_all(incoming: IncomingFolder, files: dict[str, bytes] = NEW) -> None:
    for name, data in files.items():
        half = len(data) // 2
        incoming.write(name, 0, data[:half])
        incoming.write(name, half, data[half:])
    incoming.write(MANIFEST, 0, manifest_of(files))


def copy_and_install(disk: FakeDisk) -> None:
    incoming = IncomingFolder(disk, "d")
    incoming.begin()
    write_all(incoming)
    incoming.finish()
    incoming.keep(RECORD)
    install(disk, "d")


def holds(disk: FakeDisk, path: str, data: bytes) -> bool:
    return disk.exists(path) and disk.content(path) == data


def assert_new(disk: FakeDisk) -> None:
    for name, data in NEW.items():
        whole = data + bytes(100) if name.endswith("state") else data
        assert holds(disk, f"d/{name}", whole), name
    assert sorted(disk.listdir("d")) == sorted(
        ["checkpoint-9", "damaged-x", "hours", "lock", "log", "meta", "tick", "vote"]
    )
    assert disk.listdir("d/log") == ["00000000000000000500.log"]
    assert TickSlots(disk, "d/tick").newest == RECORD


def assert_old(disk: FakeDisk) -> None:
    for path, data in OLD.items():
        assert holds(disk, path, data), path
    assert not {"incoming", "copied", "placing"} & set(disk.listdir("d"))


def test_a_copy_takes_the_place_of_a_folder() -> None:
    disk = old_disk()
    copy_and_install(disk)
    assert_new(disk)
    assert all(holds(disk, path, data) for path, data in KEPT.items())
    assert not install(disk, "d"), "there is nothing left to do"


@pytest.mark.parametrize("survival", SURVIVALS)
def test_killed_in_every_operation(survival: Survival) -> None:
    """The next start finds the old folder or the new one, and then the same again."""
    disk = old_disk()
    before = disk.count
    copy_and_install(disk)
    seen = set()
    for at in range(before + 1, disk.count + 1):
        broken = old_disk()
        broken.crash_at = at
        with pytest.raises(DiskCrashed):
            copy_and_install(broken)
        after = broken.restart(survival, seed=at)
        install(after, "d")
        try:
            assert_old(after)
            seen.add("old")
        except AssertionError:
            assert_new(after)
            seen.add("new")
        assert all(holds(after, path, data) for path, data in KEPT.items())
    assert seen == {"old", "new"}


@pytest.mark.parametrize("survival", SURVIVALS)
def test_killed_again_while_it_is_finished(survival: Survival) -> None:
    """Each step can be done again, however often it is cut short."""
    for at in range(1, 60):
        disk = old_disk()
        incoming = IncomingFolder(disk, "d")
        incoming.begin()
        write_all(incoming)
        incoming.finish()
        incoming.keep(RECORD)
        for again in range(5):
            disk.crash_at = disk.count + at
            try:
                install(disk, "d")
                break
            except DiskCrashed:
                disk = disk.restart(survival, seed=at + 100 * again)
        else:
            disk.crash_at = 0
            install(disk, "d")
        assert_new(disk)


def change(name: str, data: bytes) -> Callable[[IncomingFolder], None]:
    return lambda incoming: incoming.write(name, 0, data)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (change("log/00000000000000000500.log", b"N"), "differs from the bytes"),
        (change("tick", b"strange"), "does not name"),
        (change(MANIFEST, b"["), "is damaged"),
        (change(f"{HOUR}/state", b"longer than it was before"), "differs from the bytes"),
    ],
)
def test_what_is_not_as_it_was_read_is_refused(
    fault: Callable[[IncomingFolder], None], says: str
) -> None:
    disk = old_disk()
    incoming = IncomingFolder(disk, "d")
    incoming.begin()
    write_all(incoming)
    fault(incoming)
    with pytest.raises(BackupError, match=says):
        incoming.finish()
    incoming.remove()
    assert_old(disk)


def test_what_never_came_is_missed() -> None:
    """A file of which no part came counts as zeros, and those have another checksum."""
    disk = old_disk()
    incoming = IncomingFolder(disk, "d")
    incoming.begin()
    incoming.write(MANIFEST, 0, manifest_of(NEW))
    with pytest.raises(BackupError, match="differs from the bytes"):
        incoming.finish()
    incoming.begin()
    with pytest.raises(BackupError, match="not a complete backup"):
        incoming.finish()


@pytest.mark.parametrize("name", ["meta", "../d/meta", "hours/../meta", "log/x", "", "lock", "/x"])
def test_a_name_that_no_copy_has(name: str) -> None:
    """Nothing outside of its own folder can be written, and no promise."""
    incoming = IncomingFolder(old_disk(), "d")
    incoming.begin()
    with pytest.raises(BackupError, match="cannot contain"):
        incoming.write(name, 0, b"x")


def test_a_full_disk_leaves_the_old_folder() -> None:
    disk = old_disk()
    incoming = IncomingFolder(disk, "d")
    incoming.begin()
    disk.full_at = range(disk.count + 3, disk.count + 4)
    with pytest.raises(DiskFullError):
        write_all(incoming)
    incoming.remove()
    assert_old(disk)


def test_a_large_copy_is_synced_on_its_way() -> None:
    """A disk with gigabytes to write back would stand still at the end."""
    disk = old_disk()
    incoming = IncomingFolder(disk, "d")
    incoming.begin()
    began = len(disk.log)
    for at in range(40):
        incoming.write("log/00000000000000000500.log", at << 20, bytes(1 << 20))
    assert any(line.startswith("sync") for line in disk.log[began:])


def test_a_half_placed_copy_is_set_aside_with_the_data() -> None:
    """Its other half would be put into the folder that was emptied for the next copy."""
    meta = Meta.learner(bytes(CLUSTER_ID_SIZE), 1, {})
    placed = 0
    while True:
        disk = old_disk()
        MetaFile.make(disk, f"d/{META}", meta)
        incoming = IncomingFolder(disk, "d")
        incoming.begin()
        write_all(incoming)
        incoming.finish()
        incoming.keep(RECORD)
        placed += 1
        disk.fail_at = range(disk.count + placed, disk.count + placed + 1)
        try:
            install(disk, "d")
        except DiskFailedError:
            disk.fail_at = frozenset()
        else:
            break
        note_damage(disk, "d", CorruptionError("a bad frame", path="d/log/0.log", position=7))
        set_aside(disk, "d", meta, 1_700_000_000.0)
        assert not install(disk, "d")
        assert contents_of(disk, "d") == []
    assert placed > 20
