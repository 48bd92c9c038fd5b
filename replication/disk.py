"""What replication needs of a node's disk: a log of whole frames, the meta file and the tick.

The log may be written by others (an engine that leads); replication reads it, adopts and cuts.
Appending returns at once and becomes durable later, when the host has synced; cutting and
promising are durable when they return.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTable
from delaylog.replication.meta import Meta
from delaylog.replication.raw_frames import RawFrame
from delaylog.replication.watermark import EpochTick
from delaylog.storage.messages.batch import Block


class ReplicaLog(Protocol):
    """The physical log as replication sees it."""

    @property
    def epochs(self) -> EpochTable:
        """Where each epoch begins in it. Read it; it changes with the log."""

    @property
    def first_position(self) -> int:
        """First position that is still held."""

    @property
    def end(self) -> int:
        """Position behind the last frame that `read` can give."""

    @property
    def durable_end(self) -> int:
        """Up to where it has been synced."""

    def read(self, start: int, bytes_max: int) -> Block:
        """Whole frames from the one at `start` on: as many as fit, and at least one."""

    def append_frames(self, data: Block, frames: Sequence[RawFrame]) -> None:
        """Put checked frames behind the last one."""

    def append_begin(
        self, tick: EpochTick, leader_time_ms: int, configuration: Configuration | None = None
    ) -> None:
        """Begin the epoch of `tick` with an EPOCH_BEGIN frame that carries both."""

    def cut(self, position: int) -> None:
        """Drop everything from `position` on; durable when it returns."""


class MetaStore(Protocol):
    """The meta file."""

    @property
    def meta(self) -> Meta:
        """As it was last saved."""

    def save(self, meta: Meta) -> None:
        """Replace it; durable when it returns."""


class TickStore(Protocol):
    """The tick slots."""

    @property
    def tick(self) -> EpochTick:
        """As it was last written."""

    def write(self, tick: EpochTick) -> None:
        """Survives a kill when it returns, and a power cut once the host has synced."""
