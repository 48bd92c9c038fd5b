"""A damaged folder makes room: set aside whole, after any kill, and only when somebody can help."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from delaylog.broker.cluster.config import (
    ClusterConfig,
    ClusterSecret,
    KeyUse,
    Member,
    cluster_id_of,
)
from delaylog.broker.cluster.copies.damaged_files import (
    NoCopyError,
    heal,
    note_damage,
    noted_damage,
    set_aside,
)
from delaylog.broker.cluster.copies.incoming_folder import MARK
from delaylog.broker.cluster.member_files import META, new_learner, open_member
from delaylog.broker.host.machine import REAL
from delaylog.client.child_broker import free_port
from delaylog.replication.errors import ClusterError
from delaylog.replication.leader import Acks
from delaylog.replication.messages import Hello
from delaylog.replication.meta import MetaFile, load_meta
from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.space_reserve import RESERVE
from tests.broker.cluster.peers.rig import Rig
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival
from tests.storage.small_disk import SmallDisk

DATA = {
    "d/log/00000000000000000000.log": b"log",
    "d/hours/2021-05-01T05Z/delay.index": b"rows",
    "d/tick": b"tick",
    "d/checkpoint-8": b"checkpoint",
    "d/ids/index": b"ids",
}
ERROR = CorruptionError("a bad frame", path="d/log/0.log", position=7)


def config(size: int = 3) -> ClusterConfig:
    members = tuple(
        Member(node, f"node-{node}", address, address, "http://127.0.0.1:1")
        for node in range(1, size + 1)
        for address in [("127.0.0.1", free_port())]
    )
    return ClusterConfig(
        "c",
        cluster_id_of("c"),
        1,
        members,
        Acks.QUORUM,
        tls=None,
        secret=ClusterSecret((bytes(range(32)),)),
    )


CONFIG = config()
META_BEFORE = replace(new_learner(CONFIG), promised_epoch=0x70003, voter=True)


def damaged_disk() -> FakeDisk:
    disk = FakeDisk()
    for path, data in DATA.items():
        disk.mkdir(path.rpartition("/")[0])
        disk.put(path, data)
    MetaFile(disk, f"d/{META}", META_BEFORE).save(META_BEFORE)
    disk.sync_all()
    return disk


def make_room(disk: FakeDisk) -> None:
    """As a start does it, once it knows that somebody has the data."""
    error = noted_damage(disk, "d") or ERROR
    note_damage(disk, "d", error)
    meta = load_meta(disk, f"d/{META}")
    assert meta is not None
    set_aside(disk, "d", meta, 1_700_000_000.0)


def assert_aside(disk: FakeDisk) -> None:
    """Nothing is gone, nothing is served, and the promise stands."""
    asides = [name for name in disk.listdir("d") if name.startswith("damaged-")]
    for path, data in DATA.items():
        rest = path.removeprefix("d/")
        assert not disk.exists(path)
        (found,) = [name for name in asides if disk.exists(f"d/{name}/{rest}")]
        assert disk.content(f"d/{found}/{rest}") == data
    assert not disk.exists(f"d/{MARK}")
    meta = load_meta(disk, f"d/{META}")
    assert meta == replace(META_BEFORE, voter=False)


def test_the_folder_is_set_aside() -> None:
    disk = damaged_disk()
    make_room(disk)
    assert_aside(disk)
    assert noted_damage(disk, "d") is None


def test_the_audit_log_stays() -> None:
    disk = damaged_disk()
    disk.mkdir("d/audit")
    disk.put("d/audit/audit-00000000000000000001.jsonl", b"line")
    make_room(disk)
    assert disk.listdir("d/audit") == ["audit-00000000000000000001.jsonl"]


@pytest.mark.parametrize("survival", SURVIVALS)
def test_killed_in_every_operation(survival: Survival) -> None:
    """The next start sees what it saw before, or the mark, and goes on; nothing is lost."""
    disk = damaged_disk()
    first = disk.count
    make_room(disk)
    for at in range(first + 1, disk.count + 1):
        broken = damaged_disk()
        broken.crash_at = at
        with pytest.raises(DiskCrashed):
            make_room(broken)
        after = broken.restart(survival, seed=at)
        begun = any(not after.exists(path) for path in DATA)
        marked = after.exists(f"d/{MARK}")
        left = any(after.exists(path) for path in DATA)
        assert marked or not (begun and left), "what is half gone would pass for something else"
        if left or marked:
            make_room(after)
        assert_aside(after)


def test_a_cluster_of_one_ends_with_its_error(tmp_path: Path) -> None:
    with pytest.raises(CorruptionError, match="a bad frame"):
        asyncio.run(heal(OsFileSystem(), str(tmp_path), config(1), ERROR, REAL))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("voter", "end", "helps"), [(True, 500, True), (False, 500, False), (True, 0, False)]
)
def test_only_a_voter_with_data_helps(
    tmp_path: Path, voter: bool, end: int, helps: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A learner may hold anything, and a blank node nothing."""
    cluster = config()
    (tmp_path / "log").mkdir()
    heard: list[Hello | None] = []
    hello = Hello(cluster.cluster_id, 2, voter, 0, end)

    async def both() -> None:
        rig = Rig()
        rig.addresses = cluster.peers
        other = await rig.start(
            2,
            cluster_id=cluster.cluster_id,
            keys=lambda: cluster.keys(KeyUse.PEERS),
            hello=lambda: hello,
            on_connect=lambda peer: heard.append(other.transport.hello_of(peer)),
        )
        try:
            # Where nobody helps, the other one must have been heard of by then.
            seconds = 30 if helps else 4
            await heal(OsFileSystem(), str(tmp_path), cluster, ERROR, REAL, seconds=seconds)
        finally:
            await other.transport.stop()

    if helps:
        asyncio.run(both())
        (aside,) = tmp_path.glob("damaged-*")
        assert (aside / "log").is_dir()
        meta = load_meta(OsFileSystem(), str(tmp_path / META))
        assert meta is not None
        assert not meta.voter
    else:
        with pytest.raises(NoCopyError, match="a bad frame"):
            asyncio.run(both())
        assert "no other voter with data answers" in caplog.text
        assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert heard
    said = heard[0]
    assert said is not None
    assert not said.voter
    assert said.end > 0, "others must not take this node for one of a new cluster"


def test_the_cluster_file_may_be_newer_than_the_folder_that_was_set_aside(tmp_path: Path) -> None:
    """It was founded with three members and has five by now; the log to come says so, too."""
    fs, folder = OsFileSystem(), str(tmp_path)
    for voter in (False, True):
        meta = replace(META_BEFORE, voter=voter)
        MetaFile(fs, f"{folder}/{META}", meta).save(meta)
        if voter:
            with pytest.raises(ClusterError, match="must name the founders"):
                open_member(fs, folder, config(5), incarnation=1)
        else:
            open_member(fs, folder, config(5), incarnation=1).close()


def test_a_member_starts_on_a_full_disk_by_its_reserve(tmp_path: Path) -> None:
    """It was killed while another program had the last byte; each start notes a new life."""
    folder = str(tmp_path)
    disk = SmallDisk(folder, 1 << 20)
    MetaFile(disk, f"{folder}/{META}", META_BEFORE).save(META_BEFORE)
    open_member(disk, folder, CONFIG, incarnation=1).close()
    disk.take_all()
    with pytest.raises(DiskFullError):
        open_member(disk, folder, CONFIG, incarnation=2)
    disk.others = 0
    (tmp_path / RESERVE).write_bytes(bytes(1 << 18))
    disk.take_all()
    open_member(disk, folder, CONFIG, incarnation=3).close()
    meta = load_meta(disk, f"{folder}/{META}")
    assert meta is not None
    assert meta.voter
    assert meta.promised_epoch == META_BEFORE.promised_epoch
    assert 0 < (tmp_path / RESERVE).stat().st_size < 1 << 18
