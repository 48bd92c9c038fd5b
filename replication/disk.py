"""The protocols of a node's disk for replication: a log of whole frames, the meta file, the tick.

An engine that leads appends to the log too; replication reads it, appends a leader's frames, and
cuts it. An append becomes durable later, when the host has synced the log; a cut and a promise are
durable when the call returns.
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
        """The first position that was not removed."""

    @property
    def end(self) -> int:
        """The end of the last frame."""

    @property
    def durable_end(self) -> int:
        """The end of the part that is synced."""

    def read(self, start: int, bytes_max: int) -> Block:
        """Whole frames, the first at `start`: as many as fit, and at least one."""

    def append_frames(self, data: Block, frames: Sequence[RawFrame]) -> None:
        """Append checked frames."""

    def append_begin(
        self, tick: EpochTick, leader_time_ms: int, configuration: Configuration | None = None
    ) -> None:
        """Append an EPOCH_BEGIN frame that begins the epoch of `tick` with this configuration."""

    def cut(self, position: int) -> None:
        """Drop everything from `position` on; durable when it returns."""


class MetaStore(Protocol):
    """The meta file."""

    @property
    def meta(self) -> Meta:
        """The value that was saved last."""

    def save(self, meta: Meta) -> None:
        """Replace it; durable when it returns."""


class TickStore(Protocol):
    """The tick slots."""

    @property
    def tick(self) -> EpochTick:
        """The value that was written last."""

    def write(self, tick: EpochTick) -> None:
        """It survives a kill when this returns, and a power cut once the host has synced."""
