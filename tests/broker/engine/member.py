"""A member of a cluster: a folder whose engine follows a log that another engine writes.

The leader is an engine on its own folder; its log is copied frame by frame, as replication does,
and only what is committed is applied.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from delaylog.broker.engine.engine import Engine, Membership, Setup
from delaylog.storage.checkpoint import load_newest
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import EPOCH_NODE_BITS, FrameKind
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickSlots


class Member:
    """One folder that follows."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        self.folder, self.now_ms = folder, now_ms
        self.commit = 0
        self.dropped: list[int] = []
        """Up to where the engine found its log superfluous; none of it goes."""
        self.open()

    def open(self) -> None:
        fs, folder = OsFileSystem(), str(self.folder)
        if not fs.exists(folder):
            fs.mkdir(folder)
        saved = load_newest(fs, folder)
        start = saved.position if saved else 0
        self.log = PhysicalLog(fs, f"{folder}/log", node=2)
        for _ in self.log.recover(start, start):
            pass
        self.ticks = TickSlots(fs, f"{folder}/tick")
        self.make_engine()

    def make_engine(self) -> None:
        self.engine = Engine(
            OsFileSystem(),
            str(self.folder),
            Setup(random=Random(1)),
            now_ms=self.now_ms,
            member=Membership(self.log, self.ticks, lambda: self.commit, self._drop),
        )

    def _drop(self, position: int) -> int:
        self.dropped.append(position)
        return 0

    def copy(self, leader: PhysicalLog, upto: int) -> None:
        """Frames come from the leader; nothing says yet that they are committed."""
        while self.log.end_position < upto:
            self.log.append_raw(leader.read(self.log.end_position, 4_096))
        self.log.write_pending()
        self.log.sync()

    def follow(self, commit: int) -> None:
        self.commit = commit
        self.engine.run_inline(self.engine.follow(commit))

    def lead(self, now_ms: int, told_ms: int | None = None) -> None:
        """As replication does: a new epoch, committed, everything applied. `told_ms` = the time of
        the cluster's tick, if it is not `now_ms`."""
        epoch = self.engine.state.epoch_counter + 1 << EPOCH_NODE_BITS | 2
        self.log.append(FrameKind.EPOCH_BEGIN, [], epoch=epoch, leader_time_ms=now_ms, tick=Tick())
        self.log.write_pending()
        self.follow(self.log.sync())
        self.engine.lead(now_ms, now_ms if told_ms is None else told_ms)
        self.engine.state.committed = lambda: self.log.durable_position

    def lead_after(self, host: Any) -> None:
        """Hold and apply all that a leader has, and lead in its place."""
        self.catch_up(host)
        self.lead(host.now_ms)

    def close(self) -> None:
        self.engine.close()
        self.log.close()
        self.ticks.close()

    def catch_up(self, host: Any) -> None:
        """Hold and apply all that a leader has."""
        host.sync()
        theirs = host.engine.state.log
        self.copy(theirs, theirs.end_position)
        self.follow(theirs.end_position)


def contents(engine: Engine) -> dict[int, tuple[bytes, bytes, list[bytes]]]:
    """Of each hour: rows, records and the states of every group."""
    hours = engine.state.hours
    engine.run_inline(hours.border.bring_near(max(hours.counts, default=0)))
    engine.run_inline(engine.housekeeping.flush_work())
    engine.run_inline(engine.housekeeping.states_work())
    out = {}
    groups = {g for t in engine.state.by_number.values() for g in t.groups}
    for hour, counts in engine.state.hours.counts.items():
        if not counts.rows:
            continue
        folder = engine.state.hours.folders.hour(hour)
        assert folder.row_count == counts.rows
        rows = b"".join(part.tobytes() for part in folder.scan_rows())
        log = Path(folder.folder, "delay.log").read_bytes()
        index = np.arange(1, counts.rows + 1)
        states = [folder.states(group).get(index).tobytes() for group in sorted(groups)]
        out[hour] = (rows, log, states)
    return out
