"""Verify: a folder that brokers left is sound, whatever they did; one flipped bit is named.

Method: a host does everything the engine can do and leaves the folder at different moments; then
single bits are flipped all over each file that carries messages.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delaylog.replication.meta import Meta, MetaFile
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import EPOCH_NODE_BITS, INDEX_ENTRY, STATE_ENTRY, FrameKind
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.physical_log import PhysicalLog
from tests.broker.engine.host import HOUR
from tests.broker.verify.damaged_folder import flip
from tests.broker.verify.verifying import verify


def busy(host: Any) -> None:
    """Waiting, retried, rescheduled, cancelled, acked and leased messages in several hours."""
    rng = random.Random(3)
    for k in range(12):
        delays = [rng.randrange(3 * HOUR) for _ in range(40)]
        ids = [f"m{k}-{j}" for j in range(40)] if k % 3 else None
        host.send([b"%d" % j * (j % 7) for j in range(40)], delay=delays, ids=ids)
    host.send(30, delay=500, ids=[f"now{j}" for j in range(30)])
    host.advance(1_000)
    got = host.receive(20)
    host.ack(got[:8])
    host.nack(got[8:12], delay=2 * HOUR)
    host.nack(got[12:14], delay=0)
    host.cancel(["m1-3", "m1-4"])
    host.reschedule(["m2-5", "m2-6"], host.now_ms + 5 * HOUR)


def test_messages_of_a_dropped_group_are_not_missed(open_host: Callable[..., Any]) -> None:
    """A nack makes a row that one group alone has. Once the group is dropped, no state says that
    the row has ended, and the checkpoint does not count it.
    """
    host = open_host()
    host.put_group("a")
    host.send(5)
    host.nack(host.receive(3, group="a"), delay=60_000)
    host.drop_group("a")
    host.checkpoint()
    report = verify(host.folder)
    assert (report.damage, report.notes) == ([], [])


@pytest.mark.parametrize(
    "end", ["at once", "flushed", "checkpoint", "checkpoint and more", "hours later"]
)
def test_what_a_broker_leaves_is_sound(open_host: Callable[..., Any], end: str) -> None:
    host = open_host()
    busy(host)
    if end == "flushed":
        host.flush()
    if end in ("checkpoint", "checkpoint and more", "hours later"):
        host.checkpoint()
    if end == "checkpoint and more":
        busy_again = host.receive(5)
        host.ack(busy_again[:2])
        host.send(10, delay=HOUR)
        host.flush()
    if end == "hours later":
        host.advance(4 * HOUR)
        host.ack(host.receive(10_000))
        host.checkpoint(4)
    host.sync()
    report = verify(host.folder)
    assert report.damage == []
    assert report.frames > 10
    assert report.rows > 0 or end == "at once"


@pytest.fixture
def left(open_host: Callable[..., Any]) -> Path:
    """A folder after a checkpoint, with nothing to replay."""
    host = open_host()
    busy(host)
    host.checkpoint(2)
    host.engine.write_tick(host.now_ms)
    assert verify(host.folder).sound
    return host.folder


def test_a_row_that_lies_with_a_right_checksum(left: Path) -> None:
    """Chains and counts are worked out anew: checksums alone would not show a wrong program."""
    from crc32c import crc32c

    from delaylog.storage.layout import EXTENT

    path = max(left.rglob("delay.index"), key=lambda path: path.stat().st_size)
    rows = np.fromfile(path, INDEX_ENTRY)
    chained = int(np.flatnonzero(rows["pre_global_index"] == 0)[-1])
    rows["pre_global_index"][chained] = 1 if chained else 0
    rows.tofile(path)
    extents = np.fromfile(path.with_name("extents"), EXTENT)
    for one in extents:
        first, count = int(one["first_index"]) - 1, int(one["count"])
        one["index_crc"] = crc32c(rows[first : first + count].tobytes())
        one["crc"] = crc32c(one.tobytes()[:-4])
    extents.tofile(path.with_name("extents"))
    (finding,) = verify(left).damage
    assert finding.path.endswith("delay.index")
    assert finding.what == f"row {chained + 1}: a chain that leads to a wrong row"


def test_a_state_that_is_lost_does_not_add_up(left: Path) -> None:
    path = max(
        left.rglob("state"), key=lambda path: int(np.fromfile(path, STATE_ENTRY)["state"].max())
    )
    entries = np.fromfile(path, STATE_ENTRY)
    entries[np.flatnonzero(entries["state"] >= 4)[0]] = np.zeros(1, STATE_ENTRY)[0]
    entries.tofile(path)
    (finding,) = verify(left).damage
    assert finding.path.endswith("/state")
    assert "are living" in finding.what


def test_missing_files_and_strange_ones(left: Path) -> None:
    hours = sorted(path.parent for path in left.rglob("delay.index"))
    (hours[0] / "delay.log").unlink()
    (hours[1] / "delay.index").unlink()
    (left / "notes.txt").write_text("mine")
    report = verify(left)
    paths = {finding.path for finding in report.damage}
    assert f"hours/{hours[0].name}/delay.log" in paths
    assert f"hours/{hours[1].name}/delay.index" in paths
    assert [finding.path for finding in report.notes] == ["notes.txt"]


def test_a_file_that_a_power_cut_has_not_kept_is_a_note(open_host: Callable[..., Any]) -> None:
    """Without a checkpoint nothing of an hour was promised: a start replays it from the log."""
    host = open_host()
    busy(host)
    host.flush()
    host.sync()
    hour = min(path.parent for path in host.folder.rglob("delay.index"))
    (hour / "delay.log").unlink()
    report = verify(host.folder)
    assert report.damage == []
    assert f"hours/{hour.name}/delay.log" in {note.path for note in report.notes}


def test_an_old_checkpoint_that_a_power_cut_brought_back_is_a_note(
    open_host: Callable[..., Any],
) -> None:
    """The removal of its log was kept, and its own was not."""
    host = open_host()
    first = host.folder / "checkpoint-1"
    for number in range(4):
        host.send(3)
        host.engine.state.log.roll()
        host.checkpoint()
        if number == 0:
            raw = first.read_bytes()
    assert not first.exists()
    first.write_bytes(raw)
    report = verify(host.folder)
    assert report.damage == []
    assert [note.path for note in report.notes] == ["checkpoint-1"]


def test_a_torn_tail_is_a_note(left: Path) -> None:
    log = max((left / "log").iterdir())
    with log.open("ab") as file:
        file.write(b"torn")
    report = verify(left)
    assert report.sound
    assert [note.what for note in report.notes] == ["a torn tail of 4 bytes; a start cuts it"]


@pytest.mark.parametrize("torn", [0, 4])
def test_segments_behind_a_tail_that_a_power_cut_has_not_kept_are_a_note(
    open_host: Callable[..., Any], torn: int
) -> None:
    """A new segment may be on disk before the end of the one before it; neither was synced."""
    host = open_host()
    host.send(3)
    host.sync()
    log = host.engine.state.log
    synced, segment = log.durable_position, max((host.folder / "log").iterdir())
    log.append(FrameKind.LEVEL, [b"x" * 50], epoch=1, leader_time_ms=1, tick=Tick())
    log.write_pending()
    log.roll()
    log.append(FrameKind.LEVEL, [b"x" * 50], epoch=1, leader_time_ms=1, tick=Tick())
    log.write_pending()
    os.truncate(segment, synced - int(segment.stem) + torn)
    report = verify(host.folder)
    assert report.damage == []
    (note,) = report.notes
    assert note.what.endswith("; a start cuts it")


def test_a_segment_whose_removal_a_power_cut_has_not_kept_is_a_note(
    open_host: Callable[..., Any],
) -> None:
    """That of a later segment was kept. A start does not read it; the next checkpoint drops it."""
    host = open_host()
    raw: dict[Path, bytes] = {}
    for _ in range(6):
        host.send(3)
        host.sync()
        raw |= {path: path.read_bytes() for path in (host.folder / "log").iterdir()}
        host.engine.state.log.roll()
        host.checkpoint()
    oldest = min(raw)
    assert not oldest.exists()
    oldest.write_bytes(raw[oldest])
    report = verify(host.folder)
    assert report.damage == []
    assert [note.path for note in report.notes] == [f"log/{oldest.name}"]


def test_a_missing_segment_that_no_removal_has_passed_is_damage(
    open_host: Callable[..., Any],
) -> None:
    """Also before the newest checkpoint: an older one may have to stand in for it."""
    host = open_host()
    for _ in range(3):
        host.send(3)
        host.sync()
        host.engine.state.log.roll()
    host.checkpoint()
    sorted((host.folder / "log").iterdir())[1].unlink()
    assert any("a gap before" in found.what for found in verify(host.folder).damage)


@pytest.mark.parametrize("what", ["group", "dropped group", "purge", "dropped topic"])
def test_groups_and_floors_are_counted(open_host: Callable[..., Any], what: str) -> None:
    host = open_host()
    busy(host)
    if what != "purge":
        host.put_group("a")
        host.send(30, delay=[k * 400_000 for k in range(30)])
        host.ack(host.receive(1, group="a"))
    if what == "dropped group":
        host.drop_group("a")
    if what == "purge":
        assert host.purge("default", force=False) > 300
        host.send(3)
    if what == "dropped topic":
        host.send(3, topic="other")
        host.drop_topic()
    host.turn()
    host.checkpoint()
    assert verify(host.folder).damage == []
    hour = max(hour for hour, counts in host.engine.state.hours.counts.items() if counts.rows)
    host.engine.state.hours.counts[hour].living += 1
    host.checkpoint()
    assert len(verify(host.folder).damage) == 1, "a wrong count is found"


@pytest.mark.parametrize("member", [False, True])
def test_a_member_knows_which_frames_are_its_own(tmp_path: Path, member: bool) -> None:
    """A later frame that this node made proves that an earlier one had been whole on its disk."""
    fs, folder, node = OsFileSystem(), str(tmp_path / "member"), 2
    fs.mkdir(folder)
    if member:
        meta = Meta(bytes(16), node, {1: "a:1", 2: "b:1", 3: "c:1"})
        MetaFile.make(fs, f"{folder}/meta", meta)
    log = PhysicalLog(fs, f"{folder}/log", node=node)
    list(log.recover(0, 0))
    ends = []
    for counter in (1, 2, 3):
        epoch = counter << EPOCH_NODE_BITS | node
        log.append(FrameKind.EPOCH_BEGIN, [], epoch=epoch, leader_time_ms=1, tick=Tick())
        log.write_pending()
        ends.append(log.sync())
    log.close()
    (segment,) = Path(folder, "log").glob("*.log")
    flip(segment, (ends[0] + 50) * 8)
    report = verify(Path(folder))
    assert report.sound is not member
    assert not any(note.path in ("meta", "vote") for note in report.notes)
