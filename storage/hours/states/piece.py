"""One piece of a state column: entries of consecutive rows, in memory or mapped from the file."""

from __future__ import annotations

import mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns.questions import some
from delaylog.storage.columns.whole_rows import put_rows, take_rows
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import Mapping
from delaylog.storage.hours.states.state_seal import broken, broken_one
from delaylog.storage.layout import (
    BLANK_STATE,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    STATE_VALUES,
    Int64Array,
    StateArray,
    StateValues,
)

PAGE_SIZE: Final = 4096
PIECE_SIZE: Final = 16 << 20
PIECE_ROWS: Final = PIECE_SIZE // STATE_ENTRY_SIZE
PIECE_PAGES: Final = PIECE_SIZE // PAGE_SIZE
PAGE_ROWS: Final = PAGE_SIZE // STATE_ENTRY_SIZE
_TOUCHED_BYTES_MIN: Final = 512
_DIRTY_PAGES_MIN: Final = _TOUCHED_BYTES_MIN * 8 // PAGE_ROWS


class Unbacked:
    """Memory of a piece beyond the end of its file; pages are zero until they are touched."""

    def __init__(self) -> None:
        # Not from malloc, which would reuse freed memory and clear all 16 MiB of it.
        self.buffer: Any = mmap.mmap(-1, PIECE_SIZE, access=mmap.ACCESS_COPY)

    def forget(self, start: int, size: int) -> None:
        """Do nothing: `settle` replaces an unbacked piece by a mapped one."""

    def close(self) -> None:
        """Do nothing."""


def set_bits(bits: npt.NDArray[np.uint8], at: Int64Array) -> None:
    """Set the bits `at`. A pass sets one bit of each byte, so missing bits need further passes.

    Two passes are usually enough, at a third of the cost of `np.bitwise_or.at`.
    """
    byte, bit = at >> 3, np.left_shift(1, at & 7).astype(np.uint8)
    while len(byte):
        bits[byte] |= bit
        missing = bits[byte] & bit == 0
        byte, bit = byte[missing], bit[missing]


def set_run(bits: npt.NDArray[np.uint8], start: int, stop: int) -> None:
    """Set the bits of the non-empty range [start, stop)."""
    first, last = start >> 3, (stop - 1) >> 3
    low, high = 0xFF << (start & 7) & 0xFF, 0xFF >> (7 - ((stop - 1) & 7))
    if first == last:
        bits[first] |= low & high
        return
    bits[first] |= low
    bits[first + 1 : last] = 0xFF
    bits[last] |= high


def any_in_run(bits: npt.NDArray[np.uint8], start: int, stop: int) -> bool:
    """Whether a bit of the non-empty range [start, stop) is set."""
    first, last = start >> 3, (stop - 1) >> 3
    low, high = 0xFF << (start & 7) & 0xFF, 0xFF >> (7 - ((stop - 1) & 7))
    if first == last:
        return bool(int(bits[first]) & low & high)
    return (
        bool(int(bits[first]) & low) or bool(int(bits[last]) & high) or some(bits[first + 1 : last])
    )


def grown(flags: npt.NDArray[Any], last: int) -> npt.NDArray[Any]:
    """A copy of the flags, whose size is doubled until it has a flag of number `last`."""
    size = len(flags)
    while size <= last:
        size *= 2
    out = np.zeros(size, flags.dtype)
    out[: len(flags)] = flags
    return out


class Piece:
    __slots__ = ("dirty", "entries", "first_row", "mapping", "path", "touched")

    def __init__(self, mapping: Mapping, *, path: str, which: int, fresh: bool) -> None:
        self.mapping = mapping
        self.path = path
        self.first_row = which * PIECE_ROWS + 1
        self.entries: StateArray = np.frombuffer(mapping.buffer, STATE_ENTRY)
        self.dirty = np.zeros(_DIRTY_PAGES_MIN, np.bool_)
        """Whether each page is newer than the file; pages beyond the end of this array are not."""
        self.touched = np.zeros(_TOUCHED_BYTES_MIN, np.uint8) if fresh else None
        """A bit for each entry that was ever stored; None for a piece that was in the file before.

        Messages that are looked up for the first time are scattered over the piece: their bits are
        in the processor's cache, while their entries would be fetched from memory.
        """

    def get(self, at: Int64Array | slice) -> StateArray:
        """Copies of entries (at places, or all of a slice), without their seals.

        Raises CorruptionError for a broken seal.
        """
        if self.touched is not None:
            self._reach(at)
            if isinstance(at, slice):
                if not any_in_run(self.touched, at.start, at.stop):
                    # Messages that were sent together are mostly looked up together for the first
                    # time.
                    return np.zeros(at.stop - at.start, STATE_ENTRY)
                at = np.arange(at.start, at.stop)
            bits = self.touched[at >> 3] >> (at & 7).astype(np.uint8) & 1
            stored = int(np.count_nonzero(bits))
            if stored < len(at):
                out = np.zeros(len(at), STATE_ENTRY)
                if stored:
                    places = np.flatnonzero(bits)
                    found = take_rows(self.entries, at[places])
                    put_rows(out, places, self._checked(found, at[places]))
                return out
        return self._checked(take_rows(self.entries, at), at)

    def get_one(self, at: int) -> StateValues:
        """The entry of one place; raises CorruptionError for a broken seal."""
        touched = self.touched
        if touched is not None:
            byte = at >> 3
            if byte >= len(touched) or not touched.item(byte) >> (at & 7) & 1:
                return BLANK_STATE
        raw, start = self.mapping.buffer, at * STATE_ENTRY_SIZE
        if broken_one(raw, start):
            self._checked(take_rows(self.entries, slice(at, at + 1)), slice(at, at + 1))
        return StateValues._make(STATE_VALUES.unpack_from(raw, start))

    def put_one(self, at: int, entry: bytes) -> None:
        """Store an entry that has its seal."""
        start, touched = at * STATE_ENTRY_SIZE, self.touched
        self.mapping.buffer[start : start + STATE_ENTRY_SIZE] = entry
        if at // PAGE_ROWS >= len(self.dirty) or (touched is not None and at >> 3 >= len(touched)):
            self._reach(slice(at, at + 1))
            touched = self.touched
        self.dirty[at // PAGE_ROWS] = True
        if touched is not None:
            touched[at >> 3] |= 1 << (at & 7)

    def _reach(self, at: Int64Array | slice) -> None:
        """Extend the flags to all rows of `at`: an hour of few rows has few flags."""
        all_bits = self.touched is None or len(self.touched) == PIECE_ROWS // 8
        if all_bits and len(self.dirty) == PIECE_PAGES:
            return
        last = at.stop - 1 if isinstance(at, slice) else int(at.max())
        if last // PAGE_ROWS >= len(self.dirty):
            self.dirty = grown(self.dirty, last // PAGE_ROWS)
        if self.touched is not None and last >> 3 >= len(self.touched):
            self.touched = grown(self.touched, last >> 3)

    def _checked(self, entries: StateArray, at: Int64Array | slice) -> StateArray:
        bad = broken(entries)
        if some(bad):
            if isinstance(at, slice):
                at = np.arange(at.start, at.stop)
            row = self.first_row + int(at[np.flatnonzero(bad)[0]])
            raise CorruptionError(
                "a state with a wrong seal",
                path=self.path,
                position=(row - 1) * STATE_ENTRY_SIZE,
                detail=f"row {row}; {int(np.count_nonzero(bad))} of {len(at)} rows read",
            )
        entries["seal"] = 0
        return entries

    def put(self, at: Int64Array | slice, entries: StateArray) -> None:
        """Store entries (one for all, or one each) that have their seals; `at` as in `get`."""
        put_rows(self.entries, at, entries)
        self._reach(at)
        if isinstance(at, slice):
            # A range of flags is set at once.
            self.dirty[at.start // PAGE_ROWS : (at.stop - 1) // PAGE_ROWS + 1] = True
            if self.touched is not None:
                set_run(self.touched, at.start, at.stop)
        else:
            self.dirty[at // PAGE_ROWS] = True
            if self.touched is not None:
                set_bits(self.touched, at)
