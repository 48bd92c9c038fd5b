"""A cache of the newest frames, so that shipping and applying them reads no file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from delaylog.storage.messages.batch import Block


class _Piece(NamedTuple):
    """Frames that were appended together: one frame, or several from another node."""

    blocks: Sequence[Block]
    size: int
    one_frame: bool


class RecentFrames:
    """The newest frames, up to a number of bytes. For one thread."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` = 0: nothing is kept."""
        self.bytes_max = bytes_max
        self._pieces: OrderedDict[int, _Piece] = OrderedDict()
        self._size = 0

    def add(self, position: int, blocks: Sequence[Block], size: int, *, one_frame: bool) -> None:
        """Add frames that were appended at `position`; drop the oldest ones beyond the limit."""
        self._pieces[position] = _Piece(blocks, size, one_frame)
        self._size += size
        while self._size > self.bytes_max:
            _, oldest = self._pieces.popitem(last=False)
            self._size -= oldest.size

    def read(self, start: int, bytes_max: int) -> bytes | None:
        """Whole frames from `start` on, as many as fit and at least one; None = read the file."""
        piece = self._pieces.get(start)
        if piece is None or not (piece.size <= bytes_max or piece.one_frame):
            return None
        out: list[Block] = []
        at = start
        while piece is not None and (not out or at + piece.size - start <= bytes_max):
            out += piece.blocks
            at += piece.size
            piece = self._pieces.get(at)
        return b"".join(out)

    def clear(self) -> None:
        """Forget all frames, after the log was cut."""
        self._pieces.clear()
        self._size = 0
