"""One node's copy of the log, which follower, voter and leader share: frames, disk, limits.

Frames come from a peer as bytes, and each is checked before any of them is used. The checks are
those of a log's recovery: whole frames in sequence with correct checksums, and an epoch that never
falls and rises only with an EPOCH_BEGIN.

The disk is a log of whole frames, the meta file and the tick (`ReplicaLog`, `MetaStore`,
`TickStore`). An engine that leads appends to the log too; replication reads it, appends a leader's
frames, and cuts it. An append becomes durable later, when the host has synced the log; a cut and a
promise are durable when the call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTable, EpochTick
from delaylog.replication.errors import ClusterError, PeerError
from delaylog.replication.messages import Event, Message
from delaylog.replication.meta import Meta
from delaylog.storage.layout import FRAME_HEADER_SIZE, FrameKind
from delaylog.storage.log.frames import KNOWN_LEVEL, check_header, decode_level, frame_crc, is_known
from delaylog.storage.messages.batch import Block

# --------------------------------------------------------------------------- frames from a peer


class RawFrame(NamedTuple):
    """A checked frame: its position, epoch and tick."""

    position: int
    end: int
    epoch: int
    begins: bool
    tick: EpochTick
    level: int = 0
    """The feature level that it raises the log to; 0 = none."""
    configuration: Configuration | None = None
    """The configuration of the epoch that it begins."""


def split_frames(data: Block, position: int, epoch: int) -> list[RawFrame]:
    """The frames in `data`, which begins at `position` after a frame of `epoch`.

    Raises PeerError.
    """
    out: list[RawFrame] = []
    at, size = 0, len(data)
    while at < size:
        raw = bytes(data[at : at + FRAME_HEADER_SIZE])
        header = check_header(raw, position + at) if len(raw) == FRAME_HEADER_SIZE else None
        if header is None:
            raise PeerError(f"no frame begins at {position + at}")
        end = at + FRAME_HEADER_SIZE + header.payload_size
        if end > size:
            raise PeerError(f"the frame at {position + at} is cut short")
        if frame_crc(raw, data[at + FRAME_HEADER_SIZE : end]) != header.crc:
            raise PeerError(f"the frame at {position + at} is damaged")
        if not is_known(header):
            raise PeerError(
                f"the frame at {position + at} is of version {header.version} and kind "
                f"{header.kind}: a newer delaylog wrote it; run that release here"
            )
        level = 0
        if header.kind == FrameKind.LEVEL:
            level, _ = decode_level(data[at + FRAME_HEADER_SIZE : end])
        if level > KNOWN_LEVEL:
            raise PeerError(
                f"the log is at feature level {level}, and this delaylog knows {KNOWN_LEVEL}: "
                "run a newer release here"
            )
        begins = header.kind == FrameKind.EPOCH_BEGIN
        configuration = None
        if begins:
            try:
                configuration = Configuration.decode(data[at + FRAME_HEADER_SIZE : end])
            except ClusterError as error:
                raise PeerError(f"the frame at {position + at}: {error}") from error
        if not (header.epoch > epoch if begins else header.epoch == epoch):
            raise PeerError(f"the frame at {position + at} has epoch {header.epoch:#x}")
        epoch = header.epoch
        ticks = (header.tick_second, header.tick_local_index, header.tick_position)
        tick = EpochTick(epoch, *ticks, header.leader_time_ms)
        out.append(
            RawFrame(position + at, position + end, epoch, begins, tick, level, configuration)
        )
        at = end
    return out


# ------------------------------------------------------------------------ protocols of the disk


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
        """Whole frames, the first at `start`: as many as fit, and at least one.

        Nothing if it was removed: another thread may do that at any time.
        """

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


# --------------------------------------------------- limits, each with the reason for its value


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds and bytes; tests use other values, for which the relations below must hold."""

    round_ms: int = 50
    """Interval of a leader's rounds."""
    busy_round_ms: int = 10
    """Interval while a message is due soon: five chances for an answer before the gate closes."""
    gate_ms: int = 50
    """How long dispatch goes on after the last tick that a majority has taken. Only hand-outs of
    this time can be repeated at an unplanned failover."""
    stalled_ms: int = 1_000
    """A leader that no majority has acknowledged for this long is cut off: 20 rounds went
    unanswered."""
    retry_min_ms: int = 20
    retry_max_ms: int = 60
    """A refused candidate waits a random time between these, so that two do not retry in step."""
    yield_ms: int = 150
    """How long a node lets a candidate that it has promised begin before it tries itself."""
    fetch_stall_ms: int = 200
    """After this time without an answer of the best log, ask the others again without it."""
    serve_deadline_ms: int = 1_000
    """How long a suggested node has to serve, before another node is given a chance."""
    resign_ms: int = 1_000
    """How long a node that has given up stays out."""
    handover_deadline_ms: int = 1_000
    append_bytes_max: int = 1 << 20
    """Most bytes of frames in one APPEND or FETCHED, unless the first frame alone is larger."""
    window_bytes_max: int = 16 << 20
    """Most bytes that are shipped to a follower and not acknowledged yet."""

    def __post_init__(self) -> None:
        assert self.busy_round_ms < self.gate_ms, "the gate must not close between two rounds"
        assert self.round_ms < self.stalled_ms
        assert self.retry_min_ms <= self.retry_max_ms < self.serve_deadline_ms
        assert self.yield_ms + self.retry_max_ms < self.serve_deadline_ms
        assert self.fetch_stall_ms < self.serve_deadline_ms, "there must be time for another try"
        assert self.append_bytes_max <= self.window_bytes_max


class Now(NamedTuple):
    """The two times of an input."""

    boot_ms: int
    """CLOCK_BOOTTIME: never steps, and runs while the process is stopped or the machine sleeps. The
    gate and all deadlines use it."""
    wall_ms: int
    """The broker's stated time, which frames record."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One node's copy of the log."""

    node: int
    log: ReplicaLog
    ticks: TickStore
    timing: Timing
    send: Callable[[int, Message], None]
    tell: Callable[[Event], None]
    cut: Callable[[int], None]
    """Cuts the log, and reports it as an event."""
