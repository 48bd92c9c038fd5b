"""A simulated node's disk made of the real parts: physical log, tick slots and meta file.

They stand on the fake disk, which forgets what was not synced, sector by sector. Beside the log
runs the simulator's own, so that the judge can look at it and every read is compared.
"""

from __future__ import annotations

from random import Random

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTick
from delaylog.replication.meta import Meta, MetaFile, load_meta
from delaylog.replication.physical_disk import PhysicalReplicaLog, SlotTicks
from delaylog.replication.replica import RawFrame
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickSlots
from tests.replication.memory_disk import CLUSTER_ID, ROW, MemoryDisk, MemoryLog
from tests.storage.fake_disk import SURVIVALS, FakeDisk

SEGMENT_BYTES = 500


class MirroredLog(MemoryLog):
    """The real log and the simulator's; they are the same or a test fails."""

    def __init__(self, physical: PhysicalLog, replica: PhysicalReplicaLog) -> None:
        super().__init__()
        self.physical = physical
        self.replica = replica

    def read(self, start: int, bytes_max: int) -> bytes:
        out = bytes(self.replica.read(start, bytes_max))
        # A read ends where its segment does.
        assert out
        assert super().read(start, bytes_max).startswith(out)
        return out

    def append_frames(self, data: bytes, frames: list[RawFrame]) -> None:
        super().append_frames(data, frames)
        self.replica.append_frames(data, frames)
        self.check_same()

    def append_begin(
        self, tick: EpochTick, leader_time_ms: int, configuration: Configuration | None = None
    ) -> None:
        super().append_begin(tick, leader_time_ms, configuration)
        self.replica.append_begin(tick, leader_time_ms, configuration)
        self.check_same()

    def append_row(self, number: int, due: int, tick: EpochTick, leader_time_ms: int) -> None:
        super().append_row(number, due, tick, leader_time_ms)
        self.physical.append(
            FrameKind.SEND,
            [ROW.pack(number, due)],
            epoch=tick.epoch,
            leader_time_ms=leader_time_ms,
            tick=tick.tick,
        )

    def cut(self, position: int) -> None:
        super().cut(position)
        self.replica.cut(position)
        self.durable_end = self.replica.durable_end
        self.check_same()

    def sync(self) -> None:
        self.physical.write_pending()
        self.durable_end = self.physical.sync()

    def check_same(self) -> None:
        assert self.replica.end == self.end
        assert self.replica.epochs.entries() == self.epochs.entries()
        mine, real = self.epochs.configuration, self.replica.epochs.configuration
        assert (mine.encode() if mine else b"") == (real.encode() if real else b"")


class RealTicks(SlotTicks):
    """The slots, synced now and then."""

    def __init__(self, slots: TickSlots, log: PhysicalLog) -> None:
        super().__init__(slots, log)
        self.sync = slots.sync


class RealDisk(MemoryDisk):
    """One data folder on a fake disk."""

    def __init__(self, node: int, size: int) -> None:
        super().__init__(node, size)
        self.node = node
        self.fake = FakeDisk(node)
        self._make(Meta(CLUSTER_ID, node, self.members))

    def _make(self, meta: Meta) -> None:
        self.fake.mkdir("data")
        self.fake.sync_folder("")
        MetaFile.make(self.fake, "data/meta", meta)
        self._open()

    def _open(self) -> None:
        """What a start of the node does."""
        meta = load_meta(self.fake, "data/meta")
        assert meta is not None
        self.meta = MetaFile(self.fake, "data/meta", meta)
        slots = TickSlots(self.fake, "data/tick")
        physical = PhysicalLog(
            self.fake, "data/log", segment_bytes_max=SEGMENT_BYTES, node=self.node
        )
        replica = PhysicalReplicaLog(physical, slots)
        newest = slots.newest
        for frame in physical.recover(0, newest.durable_end if newest else 0):
            replica.note(frame)
        self.log = MirroredLog(physical, replica)
        self.ticks = RealTicks(slots, physical)

    def _reopen(self, old: MemoryLog) -> None:
        """The simulator's log is what recovery has found, which it was before."""
        self._open()
        log = self.log
        log.data, log.ends, log.epochs = old.data, old.ends, old.epochs
        log.drop(log.replica.end)
        log.durable_end = log.end
        log.check_same()
        if log.end:
            assert b"".join(self._pieces()) == log.data

    def _pieces(self) -> list[bytes]:
        out, at = [], 0
        while at < self.log.end:
            out.append(self.log.replica.read(at, 300))
            at += len(out[-1])
        return out

    def kill(self) -> None:
        self._reopen(self.log)

    def power_cut(self, random: Random) -> bool:
        before, durable = self.ticks.tick, self.log.durable_end
        self.fake = self.fake.restart(random.choice(SURVIVALS), random.randrange(1 << 30))
        self._reopen(self.log)
        assert self.log.end >= durable, "what was synced is there"
        return self.ticks.tick != before

    def wipe(self) -> None:
        self.fake = FakeDisk(self.node)
        self._make(Meta.learner(CLUSTER_ID, self.node, self.members))
