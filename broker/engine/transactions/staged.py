"""Staged parts read back from the log: the last one stays at hand while its ranges are taken.

The bytes of a frame never change, so what is remembered is what would be read. Reading and
decoding a part is work for a thread that may wait; taking a range of it is not.
"""

from __future__ import annotations

from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.transaction_frames import wire_of
from delaylog.storage.messages.batch import MessageBatch, decode_send
from delaylog.storage.messages.batch_ranges import BatchRanges

_ROWS_MAX = 2**31


class StagedParts:
    """The parts in one log."""

    def __init__(self, log: PhysicalLog) -> None:
        self._log = log
        self._loaded: tuple[int, BatchRanges] | None = None

    def has(self, position: int) -> bool:
        """Whether a part is at hand."""
        return self._loaded is not None and self._loaded[0] == position

    def load(self, position: int) -> None:
        """Read the part whose frame stands there. Any thread; raises CorruptionError."""
        frame = self._log.frame_at(position)
        if frame.header.kind != FrameKind.TXN:
            raise CorruptionError("a part is missing", path="log", position=position)
        batch = decode_send(wire_of(frame.payload), rows_max=_ROWS_MAX)
        self._loaded = position, BatchRanges(batch)

    def rows(self, position: int, first: int, stop: int, decided_ms: int) -> MessageBatch:
        """Rows [first, stop) of a part. A delay counts from the decision."""
        if not self.has(position):
            self.load(position)
        assert self._loaded is not None, "it is at hand"
        batch = self._loaded[1].take(first, stop)
        if batch.delay_ms is not None:
            batch.deliver_at_ms, batch.delay_ms = batch.delay_ms + decided_ms, None
        return batch

    def drop(self) -> None:
        """Nothing is published just now."""
        self._loaded = None
