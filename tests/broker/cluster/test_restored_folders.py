"""Folders that were restored from one backup, as members of a new cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgpack
import pytest

from delaylog.broker.backup.copies import Route
from delaylog.broker.backup.folder_copy import take_backup
from delaylog.broker.backup.restore import restore_backup
from delaylog.broker.cluster.member_files import open_member
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.replication.physical_disk import SlotTicks
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.log_reader import segment_name
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickSlots
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


def found(folder: str, cluster: bytes) -> tuple[object, ...]:
    """What a folder holds once it is of this cluster."""
    files = open_member(FS, folder, CONFIG, incarnation=1)
    history, (_, begin), end = files.history((1, 2, 3)), files.last_begin, files.log_end
    files.begin_alike(cluster)
    assert files.history((1, 2, 3)) == history, "the other founders compare it"
    assert (files.last_begin[1], files.log_end, files.durable_end) == (begin, end, end)
    files.close()
    files = open_member(FS, folder, CONFIG, incarnation=2)
    log = Path(folder, "log", segment_name(files.physical.first_position)).read_bytes()
    held = log, files.replica.epochs.entries(), files.ticks.tick._replace(wall_ms=0)
    files.close()
    return held


def test_they_hold_one_log(tmp_path: Path) -> None:
    """Each restore draws an epoch of its own, and a log that ended in the greatest would be taken
    for the newest, whatever the others had committed without its node.
    """
    backup = back_up(tmp_path)
    held = []
    for seed in range(3):
        folder = f"{tmp_path}/{seed}"
        restore_backup(Route(FS, backup, FS, folder), now_ms=7 * seed, random=Random(seed))
        held.append(found(folder, b"an id of sixteen"))
    assert held[0] == held[1] == held[2]
    again = found(folder, b"another sixteen.")
    assert again != held[0], "two clusters of one backup give out other ids and receipts"
    assert found(folder, b"an id of sixteen") == held[0], "a founding that was cut short"


class Killed(Exception):
    """In place of kill -9."""


@pytest.mark.parametrize("victim", [PhysicalLog.rewrite_last, SlotTicks.write, TickSlots.sync])
def test_a_founding_that_was_killed_is_done_again(
    tmp_path: Path, victim: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others see the same folder before and after, and the log is theirs in the end."""
    backup = back_up(tmp_path)
    for seed in (1, 2):
        restore_backup(
            Route(FS, backup, FS, f"{tmp_path}/{seed}"), now_ms=7 * seed, random=Random(seed)
        )
    whole = found(f"{tmp_path}/1", b"an id of sixteen")
    files = open_member(FS, f"{tmp_path}/2", CONFIG, incarnation=1)
    history = files.history((1, 2, 3))

    def kill(*_: object, **__: object) -> None:
        raise Killed

    owner = {each.__name__: each for each in (PhysicalLog, SlotTicks, TickSlots)}
    with monkeypatch.context() as patch:
        patch.setattr(owner[victim.__qualname__.split(".")[0]], victim.__name__, kill)
        with pytest.raises(Killed):
            files.begin_alike(b"an id of sixteen")
    files.close()
    files = open_member(FS, f"{tmp_path}/2", CONFIG, incarnation=1)
    assert files.history((1, 2, 3)) == history
    files.close()
    assert found(f"{tmp_path}/2", b"an id of sixteen") == whole


def test_a_leadership_that_has_done_something_is_left_alone(tmp_path: Path) -> None:
    """A copy of a broker's folder: what stands behind its last leadership may be a message."""
    folder = f"{tmp_path}/restored"
    restore_backup(Route(FS, back_up(tmp_path), FS, folder), now_ms=7, random=Random(1))
    engine = Engine(FS, folder, Setup(random=Random(1)), now_ms=8)
    engine.state.append(FrameKind.HOUR_FLOOR, [msgpack.packb({"floor": 1})], 8)
    engine.state.log.write_pending()
    engine.commit(engine.state.log.sync(), 8)
    engine.close()
    files = open_member(FS, folder, CONFIG, incarnation=1)
    before = files.replica.epochs.entries(), files.log_end
    files.close()
    assert found(folder, b"an id of sixteen")[1] == before[0]
    files = open_member(FS, folder, CONFIG, incarnation=1)
    assert (files.replica.epochs.entries(), files.log_end) == before
    files.close()
