"""Folders that were restored from one backup, as members of a new cluster."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from delaylog.broker.backup.copying import Route
from delaylog.broker.backup.restoring import restore_backup
from delaylog.broker.backup.taking import take_backup
from delaylog.broker.cluster.member_files import open_member
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.setup import Setup
from delaylog.storage.file_system import OsFileSystem
from tests.broker.cluster.copies.test_healing import CONFIG

FS = OsFileSystem()


def back_up(tmp_path: Path) -> str:
    """A broker's folder, behind which some leaderships lie; its backup."""
    single, backup = f"{tmp_path}/single", f"{tmp_path}/backup"
    for now_ms in (1, 2):
        engine = Engine(FS, single, Setup(random=Random(1)), now_ms=now_ms)
        engine.state.log.write_pending()
        engine.commit(engine.state.log.sync(), now_ms)
        engine.close()
    take_backup(Route(FS, single, FS, backup), version="1", now_ms=lambda: 5, sleep=time.sleep)
    return backup


def test_they_hold_one_log(tmp_path: Path) -> None:
    """Each restore draws an epoch of its own, and a log that ended in the greatest would be taken
    for the newest, whatever the others had committed without its node.
    """
    backup = back_up(tmp_path)
    held, epochs = [], set()
    for seed in range(3):
        folder = f"{tmp_path}/{seed}"
        restore_backup(Route(FS, backup, FS, folder), now_ms=7 * seed, random=Random(seed))
        files = open_member(FS, folder, CONFIG, incarnation=1)
        history, (epoch, begin) = files.history((1, 2, 3)), files.last_begin
        assert files.log_end > begin
        meta = files.drop_own_epoch()
        assert meta.promised_epoch == epoch, "no message may get an id of before"
        assert files.log_end == files.durable_end <= begin
        assert files.history((1, 2, 3)) == history
        assert files.drop_own_epoch() == files.meta.meta, "all others were led"
        files.close()
        files = open_member(FS, folder, CONFIG, incarnation=2)
        tick = files.ticks.tick._replace(wall_ms=0)
        held.append((files.log_end, files.replica.epochs.entries(), tick, history))
        epochs.add(epoch)
        files.close()
    assert len(epochs) == 3
    assert held[0] == held[1] == held[2]
