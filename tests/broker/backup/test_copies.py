"""A copy of a leader's folder, taken while it works, and what a follower makes of it.

Method: the giver reads through a file system that lets the leader live on before every call (see
test_backup.py); parts go straight to the receiver's folder, which is installed over an old one.
The follower stands on the copy, gets the log behind it and must hold the same, byte by byte.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest

from delaylog.broker.backup import copies
from delaylog.broker.backup.copies import Manifest, Route
from delaylog.broker.backup.folder_copy import FolderCopy, Vanished, write_manifest
from delaylog.broker.cluster.copies.giver import Gift
from delaylog.broker.cluster.copies.incoming_folder import CopyLimits, IncomingFolder, install
from delaylog.replication.messages import CopyOffer, CopyPart
from delaylog.storage.checkpoint import load_newest
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.tick_slots import TickRecord
from tests.broker.backup.test_backup import Between, Life
from tests.broker.engine.member import Member, contents
from tests.effort import tries


def hand_over(life: Life, folder: Path) -> Manifest:
    """A whole copy of the leader's folder takes the place of what `folder` held."""
    fs = OsFileSystem()
    incoming = IncomingFolder(fs, str(folder))
    for _ in range(5):
        incoming.begin()
        try:
            manifest = read(life, incoming)
            break
        except Vanished:
            # A checkpoint came and went while its hours were looked for: as the giver does.
            continue
    assert incoming.finish() == manifest
    incoming.keep(TickRecord(0, Tick(), manifest.end_position, 0))
    assert install(fs, str(folder))
    return manifest


def read(life: Life, incoming: IncomingFolder) -> Manifest:
    """The giver's side, without its thread."""

    def take(part: CopyPart) -> None:
        incoming.write(part.name, part.offset, bytes(part.data))
        gift.take(part.at + len(part.data))

    gift = Gift(2, CopyOffer(1, 1), take, CopyLimits(), monotonic)
    manifest = Manifest("1", "leader", began_at_ms=1)
    place = str(life.host.folder)
    source = Between(life.step)
    FolderCopy(Route(source, place, gift, ""), lambda *_: None, lambda _: None).run(manifest)
    write_manifest(gift, "", manifest)
    return manifest


@pytest.mark.long
@pytest.mark.parametrize("seed", range(tries(8)))
def test_a_copy_under_load(
    host: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is sent, leased, settled and moved meanwhile: rows and states are the same."""
    monkeypatch.setattr(copies, "PART_BYTES", 700)
    life = Life(host, seed, steps=60)
    while life.left:
        life.step()
    log = host.engine.state.log
    # A blank node cannot begin with the log.
    while len(host.engine.upkeep.kept_positions) < 2 or not log.first_position:
        host.send(20)
        host.checkpoint()
    folder = tmp_path / "member"
    # What it held is of another time.
    for name in ("log", "hours"):
        (folder / name).mkdir(parents=True)
    (folder / "log" / f"{0:020d}.log").write_bytes(b"old")
    (folder / "checkpoint-1").write_bytes(b"old")
    host.engine.upkeep.files_pinned = lambda: True
    life.left = 120
    manifest = hand_over(life, folder)
    assert life.left < 100, "the leader worked meanwhile"
    member = Member(folder, host.now_ms)
    try:
        assert member.log.end_position == manifest.end_position
        saved = load_newest(OsFileSystem(), str(folder))
        assert saved is not None
        assert saved.epochs, "the epoch table comes with the checkpoint"
        if Random(seed).random() < 0.5:
            member.follow(manifest.end_position)
        life.step()
        host.sync()
        member.copy(log, log.end_position)
        member.follow(log.end_position)
        theirs, ours = contents(host.engine), contents(member.engine)
        assert ours
        for hour in theirs.keys() | ours.keys():
            if hour in theirs and hour in ours:
                assert ours[hour] == theirs[hour]
            else:
                engine = host.engine if hour in theirs else member.engine
                assert engine.state.hours.counts[hour].ended
    finally:
        member.close()
