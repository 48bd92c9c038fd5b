"""Effects that do not fit into one frame: their bytes are split into pieces, one frame each.

The changes of a turn, a transaction or a script are atomic: after a crash all of them exist or
none. They may exceed a frame, and so may a single effect (SORT STORE makes large lists from small
commands). Each of these frames says which piece of how many it is, and nothing is applied before
the last piece. Pieces follow each other within one epoch. If the epoch ends before the last piece,
they are discarded. The payload of such a frame, little-endian:

    0  mark u8 (0xC1, which begins nothing in msgpack) | 1 zero 3 bytes | 4 index u32 | 8 count u32
    12 bytes of the msgpack list of all effects, continued in the next piece
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
