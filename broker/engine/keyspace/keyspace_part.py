"""The keyspace of Redis clients as the engine sees it: a leaf, `delaylog.broker.keyspace`.

The engine logs the keyspace's effects, replays them, and keeps its snapshots, without knowing what
is in them. Where the leaf is not installed a keyspace is always empty, and a folder that has one is
refused by the leaf's name.

A start restores the keyspace from a snapshot file and later frames (`KeyspaceBase`). The effects of
a frame must be applied exactly once, so the frames that the snapshot does not contain are counted.
A start compares the counts with the frames that it finds.

The changes of a turn, a transaction or a script are atomic: after a crash all of them exist or
none. They may exceed a frame, and so may a single effect (SORT STORE makes large lists from small
commands). Then their bytes are split into pieces, one frame each. Each of these frames says which
piece of how many it is, and nothing is applied before the last piece. Pieces follow each other
within one epoch. If the epoch ends before the last piece, they are discarded. The payload of such a
frame, little-endian:

    0  mark u8 (0xC1, which begins nothing in msgpack) | 1 zero 3 bytes | 4 index u32 | 8 count u32
    12 bytes of the msgpack list of all effects, continued in the next piece
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from random import Random
from typing import Any, Final, Protocol, cast

import msgpack

from delaylog.extras import REDIS
from delaylog.storage.errors import CorruptionError, MissingPartError, OlderFormatError
from delaylog.storage.messages.batch import Block

# ------------------------------------------------------------------------- the seam to the leaf

_MODULE: Final = "delaylog.broker.keyspace.engine_part"
Effects = list[list[bytes]]


class AnyKeyspace(Protocol):
    """All data that Redis clients see."""

    now_ms: int
    effects: Effects
    """Effects that are not in the log yet."""
    garbage: list[Any]
    condemned: bool

    @property
    def is_ahead(self) -> bool:
        """Whether memory has, or may have, changes that are not in the log."""

    def take_effects(self) -> Effects:
        """Remove and return the effects for one frame."""

    def next_expiry_ms(self) -> int | None:
        """The time of the next call of `expire_due`, or None."""

    def begin_expiring(self) -> None:
        """Remove expired keys from now on."""

    def stop_expiring(self) -> None:
        """Remove no expired keys from now on."""

    def expire_due(self, now_ms: int) -> int:
        """Remove some expired keys; returns their number."""

    def inherit(self, dropped: Any) -> None:
        """Free the values of a keyspace that is no longer used, in slices."""

    def free_slice(self) -> bool:
        """Free some removed values; returns whether more are left."""


class Summary(Protocol):
    """Counts of a snapshot."""

    position: int
    size: int


class CorruptSnapshot(Exception):
    """A snapshot file is corrupt. The keyspace has a class of its own with these attributes."""

    what: str
    offset: int


class SnapshotCheck(Protocol):
    """Checks a snapshot chunk by chunk without building its values."""

    summary: Summary

    def next(self) -> dict[str, Any] | None:
        """Describe the next chunk; None after the last. Raises CorruptSnapshot."""


class KeyspacePart(Protocol):
    """The leaf."""

    Keyspace: Callable[[Random], AnyKeyspace]
    apply_effects: Callable[[AnyKeyspace, Effects], None]
    """Run effects on a keyspace, without clock, checks or replies. Raises UnknownEffectError."""
    load_snapshot: Callable[[AnyKeyspace, Callable[[int], bytes]], Summary]
    """Fill an empty keyspace from a file. Raises CorruptSnapshot."""
    write_snapshot: Callable[[AnyKeyspace, int, Callable[[bytes], None]], Summary]
    ChunkCheck: Callable[[Callable[[int], bytes]], SnapshotCheck]
    SnapshotError: type[CorruptSnapshot]
    UnknownEffectError: type[Exception]


class _NoKeyspace:
    """A keyspace that stays empty."""

    condemned = is_ahead = False

    def __init__(self, random: Random) -> None:  # noqa: ARG002 (nothing is chosen)
        self.now_ms = 0
        self.effects: Effects = []
        self.garbage: list[Any] = []

    def take_effects(self) -> Effects:
        return []

    def next_expiry_ms(self) -> int | None:
        return None

    def begin_expiring(self) -> None:
        """No key expires."""

    def stop_expiring(self) -> None:
        """No key expires."""

    def expire_due(self, now_ms: int) -> int:  # noqa: ARG002 (no key expires)
        return 0

    def inherit(self, dropped: Any) -> None:
        """There is nothing to free."""

    def free_slice(self) -> bool:
        return False


def refuse(*_: Any) -> Any:
    """Refuse a folder with a keyspace."""
    raise MissingPartError("the folder has data of Redis clients", REDIS)


class _NoPart:
    """Stands for the leaf where it is not installed."""

    Keyspace = _NoKeyspace
    apply_effects = load_snapshot = write_snapshot = ChunkCheck = staticmethod(refuse)
    SnapshotError = CorruptSnapshot
    UnknownEffectError = CorruptSnapshot


@cache
def keyspace_part() -> KeyspacePart:
    """The leaf, or what stands for it."""
    try:
        part: Any = import_module(_MODULE)
    except ModuleNotFoundError as error:
        if error.name not in (_MODULE, _MODULE.rpartition(".")[0]):
            raise
        part = _NoPart
    return cast("KeyspacePart", part)


def apply_effects(keyspace: AnyKeyspace, effects: Effects) -> None:
    """Run effects of the log. Raises OlderFormatError for a command that no longer exists."""
    part = keyspace_part()
    try:
        part.apply_effects(keyspace, effects)
    except part.UnknownEffectError as error:
        raise OlderFormatError(str(error)) from None


def is_missing() -> bool:
    """Whether the leaf is not installed."""
    return keyspace_part() is cast("KeyspacePart", _NoPart)


# ------------------------------------------------------------------- what a start restores from


@dataclass(slots=True)
class KeyspaceBase:
    """A snapshot, and the frames since."""

    file: str = ""
    """Name of the snapshot; empty = an empty keyspace."""
    size: int = 0
    """Bytes of that file."""
    position: int = 0
    """The snapshot contains all KEYSPACE frames before this position, and none behind it."""
    frames: int = 0
    """KEYSPACE frames behind it so far."""
    bytes: int = 0
    """Bytes of their payloads."""

    def note(self, payload_size: int) -> None:
        """Count one more frame."""
        self.frames += 1
        self.bytes += payload_size

    def saved(self, position: int) -> dict[str, Any]:
        """What a checkpoint at `position`, the present end of the log, stores.

        While no frame has come, the log before `position` is not needed.
        """
        if not self.frames:
            self.position = position
        return asdict(self)

    def needed(self, position: int) -> int:
        """Position from which a checkpoint at `position`, taken now, would need the log."""
        return self.position if self.frames else position

    def move_up(self, made: KeyspaceBase) -> None:
        """Move to a newer snapshot; `made` has the counts of the frames that it contains."""
        self.file, self.size, self.position = made.file, made.size, made.position
        self.frames -= made.frames
        self.bytes -= made.bytes


# ------------------------------------------------------- effects that do not fit into one frame

PIECE: Final = struct.Struct("<B3xII")
PIECE_SIZE: Final = 12
assert PIECE.size == PIECE_SIZE
MARK: Final = 0xC1


def cut(packed: bytes, payload_bytes_max: int) -> Iterator[list[Block]]:
    """Payloads of the frames for `packed`, each of at most `payload_bytes_max`."""
    if len(packed) <= payload_bytes_max:
        yield [packed]
        return
    size = payload_bytes_max - PIECE_SIZE
    count = -(-len(packed) // size)
    view = memoryview(packed)
    for index in range(count):
        yield [PIECE.pack(MARK, index, count), view[index * size : (index + 1) * size]]


def piece_of(payload: Block) -> tuple[int, int] | None:
    """(index, count) of a payload that is a piece; None if it is not split."""
    if len(payload) < PIECE_SIZE or payload[0] != MARK:
        return None
    _, index, count = PIECE.unpack_from(payload)
    return index, count


class Pieces:
    """Joins the pieces of effects, in the order of the log."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._epoch = 0

    @property
    def begun(self) -> bool:
        """Whether pieces wait for their last one."""
        return bool(self._parts)

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins: pieces of another epoch are never completed."""
        if epoch != self._epoch:
            self._parts = []

    def take(self, payload: Block, epoch: int, *, path: str, position: int) -> list[list[bytes]]:
        """The effects that the frame at `position` completes; an empty list if it completes none.

        Raises CorruptionError for a piece that does not follow the one before it.
        """
        self.begin_epoch(epoch)
        piece = piece_of(payload)
        index, count = piece or (0, 1)
        if index != len(self._parts):
            raise CorruptionError(
                "effects in pieces, of which some are missing",
                path=path,
                position=position,
                detail=f"{index} of {count} behind {len(self._parts)}",
            )
        if piece is None:
            return _unpacked(payload)
        self._epoch = epoch
        self._parts.append(bytes(payload[PIECE_SIZE:]))
        if index + 1 < count:
            return []
        parts, self._parts = self._parts, []
        return _unpacked(b"".join(parts))


def _unpacked(packed: Block) -> list[list[bytes]]:
    effects: list[list[Any]] = msgpack.unpackb(packed)
    return effects
