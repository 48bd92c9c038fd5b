"""Reads staged parts back from the log, and caches those that are published next.

The bytes of a frame never change, so the cache is always valid. Reading and decoding parts may
block and belongs into a job; taking a range of one does not block.
"""

from __future__ import annotations

from collections.abc import Sequence

from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.transaction_frames import wire_of
from delaylog.storage.messages.batch import MessageBatch, decode_send
from delaylog.storage.messages.batch_ranges import BatchRanges

_ROWS_MAX = 2**31


class StagedParts:
    """The staged parts in one log."""

    def __init__(self, log: PhysicalLog) -> None:
        self._log = log
        self._loaded: dict[int, BatchRanges] = {}

    def has(self, position: int) -> bool:
        """Whether a part is cached."""
        return position in self._loaded

    def load(self, positions: Sequence[int]) -> None:
        """Cache the parts of the frames at `positions`, and no others. Any thread.

        Raises CorruptionError.
        """
        self._loaded = {position: BatchRanges(self._read(position)) for position in positions}

    def _read(self, position: int) -> MessageBatch:
        frame = self._log.frame_at(position)
        if frame.header.kind != FrameKind.TXN:
            raise CorruptionError("a part is missing", path="log", position=position)
        return decode_send(wire_of(frame.payload), rows_max=_ROWS_MAX)

    def rows(self, position: int, first: int, stop: int, decided_ms: int) -> MessageBatch:
        """Rows [first, stop) of a part. Delays count from the commit."""
        if not self.has(position):
            self.load([position])
        batch = self._loaded[position].take(first, stop)
        if batch.delay_ms is not None:
            batch.deliver_at_ms, batch.delay_ms = batch.delay_ms + decided_ms, None
        return batch

    def drop(self) -> None:
        """Empty the cache: nothing is being published."""
        self._loaded = {}
