"""A node's disk in memory: a log of real frames, meta and tick, each with what is durable of it.

A kill keeps what was written, a power cut only what was synced and any whole frames behind it, and
a wipe nothing.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from random import Random

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import NO_TICK, EpochTable, EpochTick
from delaylog.replication.meta import Meta
from delaylog.replication.replica import RawFrame
from delaylog.storage.layout import FRAME_HEADER_SIZE, FrameKind
from delaylog.storage.log.frames import encode_frame

ROW = struct.Struct("<II")
"""A frame of the tests holds one message: its number and the second it is due in."""
CLUSTER_ID = b"a test's cluster"


class MemoryLog:
    """Frames one behind the other, as bytes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.epochs = EpochTable()
        self.ends: list[int] = []
        self.durable_end = 0
        self.first_position = 0
        self.changes = 0
        self.cuts: list[int] = []

    @property
    def end(self) -> int:
        return len(self.data)

    def read(self, start: int, bytes_max: int) -> bytes:
        first = bisect_right(self.ends, start)
        last = max(bisect_right(self.ends, start + bytes_max) - 1, first)
        return bytes(self.data[start : self.ends[last]])

    def append_frames(self, data: bytes, frames: list[RawFrame]) -> None:
        assert frames[0].position == self.end
        assert frames[-1].end == self.end + len(data)
        for frame in frames:
            if frame.begins:
                self.epochs.begin(frame.epoch, frame.position, frame.configuration)
            self.ends.append(frame.end)
        self.data += data
        self.changes += 1

    def append_begin(
        self, tick: EpochTick, leader_time_ms: int, configuration: Configuration | None = None
    ) -> None:
        self.epochs.begin(tick.epoch, self.end, configuration)
        payload = b"" if configuration is None else configuration.encode()
        self._append(FrameKind.EPOCH_BEGIN, payload, tick, leader_time_ms)

    def append_row(self, number: int, due: int, tick: EpochTick, leader_time_ms: int) -> None:
        """What the engine of a leader does."""
        self._append(FrameKind.SEND, ROW.pack(number, due), tick, leader_time_ms)

    def _append(self, kind: FrameKind, payload: bytes, tick: EpochTick, now_ms: int) -> None:
        buffers, _ = encode_frame(
            kind,
            [payload],
            (tick.epoch, now_ms, tick.tick),
            position=self.end,
            synced_position=self.durable_end,
        )
        self.data += b"".join(bytes(buffer) for buffer in buffers)
        self.ends.append(self.end)
        self.changes += 1

    def cut(self, position: int) -> None:
        self.cuts.append(position)
        self.drop(position)
        self.durable_end = min(self.durable_end, position)
        self.changes += 1

    def drop(self, position: int) -> None:
        del self.data[position:]
        del self.ends[bisect_left(self.ends, position + 1) :]
        self.epochs.cut(position)

    def rows(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(position, number, due) of the messages between two positions."""
        out = []
        at = start
        for frame_end in self.ends[bisect_right(self.ends, start) : bisect_right(self.ends, end)]:
            if self.epochs.at(at) == self.epochs.before(at) and at:
                out.append((at, *ROW.unpack_from(self.data, at + FRAME_HEADER_SIZE)))
            at = frame_end
        return out

    def begins(self, start: int, end: int) -> list[bytes]:
        """The payloads of the EPOCH_BEGIN frames between two positions."""
        out = []
        for _, at in self.epochs.entries():
            if start <= at < end:
                behind = self.ends[bisect_right(self.ends, at)]
                out.append(bytes(self.data[at + FRAME_HEADER_SIZE : behind]))
        return out

    def sync(self) -> None:
        self.durable_end = self.end

    def restart(self, random: Random | None) -> None:
        """After a kill, or after a power cut if there is a `random` to say what it left."""
        if random is not None:
            bounds = [end for end in self.ends if end > self.durable_end]
            self.drop(random.choice([self.durable_end, *bounds]))
        self.changes += 1
        self.durable_end = self.end


class MemoryMeta:
    """The meta file: `save` is durable."""

    def __init__(self, meta: Meta) -> None:
        self.meta = meta
        self.durable = meta

    def save(self, meta: Meta) -> None:
        self.meta = self.durable = meta


class MemoryTicks:
    """The tick slots: written at once, synced now and then."""

    def __init__(self) -> None:
        self.tick = NO_TICK
        self.synced = NO_TICK

    def write(self, tick: EpochTick) -> None:
        assert tick > self.tick, "a tick never falls"
        self.tick = tick

    def sync(self) -> None:
        self.synced = self.tick


class MemoryDisk:
    """All of it. A node beyond the `size` first ones knows of no cluster yet."""

    def __init__(self, node: int, size: int) -> None:
        self.members = {number: f"node-{number}" for number in range(size)} if node < size else {}
        self.log = MemoryLog()
        self.meta = MemoryMeta(Meta(CLUSTER_ID, node, self.members))
        self.ticks = MemoryTicks()

    def kill(self) -> None:
        self.log.restart(None)
        self.meta.meta = self.meta.durable

    def power_cut(self, random: Random) -> bool:
        """Returns whether a tick was lost."""
        self.log.restart(random)
        self.meta.meta = self.meta.durable
        lost = self.ticks.tick != self.ticks.synced
        self.ticks.tick = self.ticks.synced
        return lost

    def wipe(self) -> None:
        """A new disk: the node knows of nothing."""
        self.log = MemoryLog()
        self.meta = MemoryMeta(Meta.learner(CLUSTER_ID, self.meta.meta.node_id, self.members))
        self.ticks = MemoryTicks()
