"""The protocols of replica.py over a data folder: the physical log and the tick slots.

The engine appends to the same physical log. Replication adds a table of epochs, frames from a peer,
and cuts. The table is made from a checkpoint and the frames after it, and every method that adds or
removes an EPOCH_BEGIN updates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import NO_TICK, EpochEntries, EpochTable, EpochTick
from delaylog.replication.replica import RawFrame
from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import FIRST_LEVEL, Frame, decode_level
from delaylog.storage.log.log_reader import frames_in
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickRecord, TickSlots
from delaylog.storage.messages.batch import Block

READ_KEPT_BYTES: Final = 1 << 20
"""The last read is cached up to this size."""


class PhysicalReplicaLog:
    """A `ReplicaLog` of segments on disk."""

    def __init__(
        self,
        log: PhysicalLog,
        slots: TickSlots,
        entries: EpochEntries = (),
        configuration: Configuration | None = None,
    ) -> None:
        """`entries` and `configuration` are a checkpoint's; `note` adds the replayed frames."""
        self._log = log
        self._slots = slots
        self.epochs = EpochTable(entries, configuration)
        self._last_read: tuple[int, bytes] = (0, b"")
        self.level = FIRST_LEVEL
        """The highest feature level of the frames that were noted or came from a peer. A cut lowers
        it at the next start only: until then a node may be refused without need, never accepted.
        """

    def note(self, frame: Frame) -> None:
        """A frame was replayed, or appended by the engine."""
        header = frame.header
        if header.kind == FrameKind.EPOCH_BEGIN and header.epoch > self.epochs.last_epoch:
            configuration = Configuration.decode(frame.payload)
            self.epochs.begin(header.epoch, header.position, configuration, header.leader_time_ms)
        elif header.kind == FrameKind.LEVEL:
            self.level = max(self.level, decode_level(frame.payload)[0])

    @property
    def first_position(self) -> int:
        return self._log.first_position

    @property
    def end(self) -> int:
        return self._log.end_position

    @property
    def durable_end(self) -> int:
        return self._log.durable_position

    def read(self, start: int, bytes_max: int) -> Block:
        position, data = self._last_read
        if position == start and 0 < len(data) <= bytes_max:
            # Most often it is read for the other follower.
            return data
        try:
            data = self._log.read(start, bytes_max)
        except (CorruptionError, FileNotFoundError):
            if start < self.first_position:
                # Another thread has removed the segment meanwhile.
                return b""
            raise
        if start < self._log.found_end:
            # These frames were not checked since they were written; a peer would refuse corrupt
            # ones. Raises CorruptionError.
            for _ in frames_in(data, start):
                pass
        if len(data) <= READ_KEPT_BYTES:
            self._last_read = (start, data)
        return data

    def append_frames(self, data: Block, frames: Sequence[RawFrame]) -> None:
        assert frames[0].position == self.end, "frames follow each other"
        self._log.append_raw(data)
        assert frames[-1].end == self.end, "the data consists of the frames"
        for frame in frames:
            if frame.begins:
                self.epochs.begin(
                    frame.epoch, frame.position, frame.configuration, frame.tick.wall_ms
                )
            self.level = max(self.level, frame.level)

    def append_begin(
        self, tick: EpochTick, leader_time_ms: int, configuration: Configuration | None = None
    ) -> None:
        self.epochs.begin(tick.epoch, self.end, configuration, leader_time_ms)
        self._log.append(
            FrameKind.EPOCH_BEGIN,
            [] if configuration is None else [configuration.encode()],
            epoch=tick.epoch,
            leader_time_ms=leader_time_ms,
            tick=tick.tick,
        )

    def begin_anew(self, tick: EpochTick, leader_time_ms: int) -> None:
        """Give the last epoch, which has only its EPOCH_BEGIN, another number."""
        _, start = self.epochs.entries()[-1]
        self._log.rewrite_last(
            start,
            FrameKind.EPOCH_BEGIN,
            epoch=tick.epoch,
            leader_time_ms=leader_time_ms,
            tick=tick.tick,
        )
        self._last_read = (0, b"")
        self.epochs.cut(start)
        self.epochs.begin(tick.epoch, start, began_ms=leader_time_ms)

    def cut(self, position: int) -> None:
        # The slots state the durable end: the next start would take the cut for a loss.
        newest = self._slots.newest
        if newest is not None and newest.durable_end > position:
            self._slots.write(replace(newest, durable_end=position))
            self._slots.sync()
        self._last_read = (0, b"")
        self._log.cut(position)
        self.epochs.cut(position)


class SlotTicks:
    """A `TickStore` in the two slots of the file `tick`."""

    def __init__(self, slots: TickSlots, log: PhysicalLog) -> None:
        self._slots = slots
        self._log = log

    @property
    def tick(self) -> EpochTick:
        newest = self._slots.newest
        if newest is None:
            return NO_TICK
        tick = newest.tick
        wall_ms = newest.wall_time_ms
        return EpochTick(newest.epoch, tick.second, tick.local_index, tick.position, wall_ms)

    def write(self, tick: EpochTick) -> None:
        durable = self._log.durable_position
        self._slots.write(TickRecord(tick.epoch, tick.tick, durable, tick.wall_ms))
