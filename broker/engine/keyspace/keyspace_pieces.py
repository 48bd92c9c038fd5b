"""Effects that are too many for one frame: their bytes come in several, and count only together.

What a turn, a transaction or a script changed is there whole after a crash or not at all, also
when it is more than a frame holds; a single effect may be (SORT STORE makes large lists of small
commands). So each of those frames says which piece of how many it is, and nothing is applied before
the last. They stand behind each other in one leadership: where it ends before the last of them,
they are never made whole, and forgotten. The payload of such a frame, little-endian:

    0  mark u8 (0xC1, which begins nothing in msgpack) | 1 zero 3 bytes | 4 index u32 | 8 count u32
    12 bytes of the msgpack list of all effects, which go on in the next piece
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import msgpack

from delaylog.storage.errors import CorruptionError
from delaylog.storage.messages.batch import Block

PIECE: Final = struct.Struct("<B3xII")
PIECE_SIZE: Final = 12
assert PIECE.size == PIECE_SIZE
MARK: Final = 0xC1


def cut(packed: bytes, payload_bytes_max: int) -> Iterator[list[Block]]:
    """Payloads of frames that hold `packed`, each at most so large."""
    if len(packed) <= payload_bytes_max:
        yield [packed]
        return
    size = payload_bytes_max - PIECE_SIZE
    count = -(-len(packed) // size)
    view = memoryview(packed)
    for index in range(count):
        yield [PIECE.pack(MARK, index, count), view[index * size : (index + 1) * size]]


def piece_of(payload: Block) -> tuple[int, int] | None:
    """Which piece of how many a payload is; None if it is whole."""
    if len(payload) < PIECE_SIZE or payload[0] != MARK:
        return None
    _, index, count = PIECE.unpack_from(payload)
    return index, count


class Pieces:
    """Puts the effects of frames together, in the order of the log."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._epoch = 0

    @property
    def begun(self) -> bool:
        """Whether there are pieces without the last of them."""
        return bool(self._parts)

    def begin_epoch(self, epoch: int) -> None:
        """A leadership began, this one or one before: what others began is never made whole."""
        if epoch != self._epoch:
            self._parts = []

    def take(self, payload: Block, epoch: int, *, path: str, position: int) -> list[list[bytes]]:
        """The effects that the frame at `position` completes; none if it does not.

        Raises CorruptionError for a piece whose place is not behind the one before it.
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
