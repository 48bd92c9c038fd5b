"""State column: one 32-byte entry per row of an hour, per consumer group.

The file is mapped copy-on-write in pieces of one size, so changes are made in memory and do not
reach the file by themselves. Dirty pages are copied (`collect`), written with pwrite once the
frames of their changes are committed (`write`), and released to the kernel (`settle`). A hole or a
missing file reads as zeros: the row was never delivered. Pieces beyond the end of the file are in
plain memory, so storing a state never needs the disk.

Entries are sealed when they are stored and verified when they are read (state_seal.py); callers see
their seals as zero. A replay only stores entries, so it never reads an entry that a crash has torn.

`DirtyColumns` knows the columns of a store that have dirty pages, and the number of these pages. A
query examines only the columns that changed since the last one.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns import Mask, consecutive, distinct, put_rows, some, take_rows
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem, Mapping
from delaylog.storage.hours.state_seal import broken, broken_one, sealed
from delaylog.storage.layout import (
    BLANK_STATE,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    STATE_VALUES,
    Int64Array,
    StateArray,
    StateValues,
)

# ----------------------------------------------------------------------- dirty pages of a store


class Paged(Protocol):
    """A column in pages."""

    @property
    def dirty_pages(self) -> int:
        """Number of pages that are newer than the file."""


C = TypeVar("C", bound=Paged)


class DirtyColumns(Generic[C]):
    """Columns add themselves to `changed`. All of it belongs to the store's thread."""

    def __init__(self) -> None:
        self.changed: dict[C, None] = {}
        """Columns whose set of dirty pages may have changed since the last query, in the order of
        their changes: so the same calls lead to the same writes."""
        self._pages: dict[C, int] = {}
        self._total = 0

    def forget(self, column: C) -> None:
        """The column is closed."""
        self.changed.pop(column, None)
        self._total -= self._pages.pop(column, 0)

    @property
    def pages(self) -> int:
        """Dirty pages of all columns."""
        self._update()
        return self._total

    @property
    def count(self) -> int:
        """Number of columns with dirty pages."""
        self._update()
        return len(self._pages)

    def columns(self) -> list[C]:
        """The columns with dirty pages."""
        self._update()
        return list(self._pages)

    def _update(self) -> None:
        changed, self.changed = self.changed, {}
        for column in changed:
            count = column.dirty_pages
            self._total += count - self._pages.get(column, 0)
            if count:
                self._pages[column] = count
            else:
                self._pages.pop(column, None)


# ---------------------------------- one piece: entries of consecutive rows, in memory or mapped

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


# ----------------------------------------------------------------------------------- the column

COLUMN_BYTES: Final = 1_536
"""Memory of a column in addition to its pages: its objects, and the bits of a few rows."""
_BACK_PAGES_MAX: Final = PIECE_PAGES // 8

StateRun: TypeAlias = tuple[int, int, bytes]
"""(piece, number of the first page in it, bytes): a copy of consecutive pages."""
StateRuns: TypeAlias = list[StateRun]


class StateColumn:
    """States of one hour for one group. Row numbers begin at 1."""

    def __init__(
        self, fs: FileSystem, path: str, dirty: DirtyColumns[StateColumn] | None = None
    ) -> None:
        """`dirty` is notified when pages change; the flusher reads it."""
        self._fs = fs
        self._path = path
        self._dirty = dirty if dirty is not None else DirtyColumns()
        self._file: File | None = None
        """Open only from a write to its sync, which reports write errors to open descriptors."""
        self._writing = threading.Lock()
        self._pieces: dict[int, Piece] = {}
        self._has_new_name = True
        """True for an existing file too: the process or engine that created it may have ended
        before it synced the folder.
        """
        self._exists = fs.exists(path)
        self._length = 0
        self.used = False
        """Whether this column was used since the last check by `OpenHours`."""
        self.busy = False
        """Whether a flush has copied pages and not written all of them yet."""
        if self._exists:
            with self._opened() as file:
                self._length = file.size()

    @property
    def path(self) -> str:
        """Where the file is (or will be)."""
        return self._path

    @property
    def absent(self) -> bool:
        """True while no row of this hour was ever delivered or changed."""
        return not self._exists and not self._pieces

    @contextmanager
    def _opened(self) -> Iterator[File]:
        """The file, for one operation."""
        with closing(self._fs.open(self._path)) as file:
            yield file

    @property
    def holds_file(self) -> bool:
        """Whether the file is open: written pages have not been synced."""
        return self._file is not None

    @property
    def idle(self) -> bool:
        """Whether the column can be closed without losing changes."""
        return not (self.busy or self.holds_file or self.dirty_pages)

    # ------------------------------------------------------------------ entries

    def get(self, indexes: Int64Array, run: slice | None = None) -> StateArray:
        """A copy of the entries of rows `indexes`; `run` = the same rows as a slice, if known."""
        if self.absent or len(indexes) == 0:
            return np.zeros(len(indexes), STATE_ENTRY)
        inside = _inside(indexes, run)
        if inside is not None:
            which, places = inside
            if not self._has(which):
                return np.zeros(len(indexes), STATE_ENTRY)
            return self._piece(which).get(places)
        out = np.zeros(len(indexes), STATE_ENTRY)
        at = indexes - 1
        number = at // PIECE_ROWS
        for which in distinct(number).tolist():
            if self._has(which):
                mask = number == which
                part = at[mask] - which * PIECE_ROWS
                put_rows(out, mask, self._piece(which).get(_as_run(part)))
        return out

    def has_state(self, index: int) -> bool:
        """Whether row `index` has a state."""
        which, place = divmod(index - 1, PIECE_ROWS)
        piece = self._pieces.get(which) or self.piece_to_read(which)
        return piece is not None and piece.get_one(place).state != 0

    def put(self, indexes: Int64Array, entries: StateArray | Any, run: slice | None = None) -> None:
        """Store entries in memory, one for all rows or one for each; see `collect`."""
        if len(indexes):
            whole = entries if isinstance(entries, np.ndarray) else np.array([entries])
            self.put_sealed(indexes, sealed(whole), run)

    def put_sealed(
        self, indexes: Int64Array, entries: StateArray, run: slice | None = None
    ) -> None:
        """Store sealed entries in memory."""
        self._dirty.changed[self] = None
        inside = _inside(indexes, run)
        if inside is not None:
            which, places = inside
            self._piece(which).put(places, entries)
            return
        at = indexes - 1
        number = at // PIECE_ROWS
        each = len(entries) > 1
        for which in distinct(number).tolist():
            mask = number == which
            part = at[mask] - which * PIECE_ROWS
            chosen = take_rows(entries, mask) if each else entries
            self._piece(which).put(_as_run(part), chosen)

    def piece_to_read(self, which: int) -> Piece | None:
        """A piece whose entries are read one by one; None if it has none."""
        piece = self._pieces.get(which)
        return self._piece(which) if piece is None and self._has(which) else piece

    def piece_to_change(self, which: int) -> Piece:
        """A piece whose entries are stored one by one."""
        self._dirty.changed[self] = None
        return self._pieces.get(which) or self._piece(which)

    def _has(self, which: int) -> bool:
        """Whether the piece may have entries: it is in memory, or within the file."""
        return which in self._pieces or which * PIECE_SIZE < self._length

    def _piece(self, which: int) -> Piece:
        piece = self._pieces.get(which)
        if piece is None:
            # Storing a state must not touch the disk: its frame is in the log already, and a
            # full disk may refuse the file. `write` creates and extends it.
            assert self._length % PIECE_SIZE == 0, "a file is whole pieces, see `cut`"
            covered = self._exists and (which + 1) * PIECE_SIZE <= self._length
            fresh = which * PIECE_SIZE >= self._length
            mapping = self._map(which) if covered else Unbacked()
            piece = Piece(mapping, path=self._path, which=which, fresh=fresh)
            self._pieces[which] = piece
        return piece

    def _map(self, which: int) -> Mapping:
        with self._opened() as file:
            return file.map_private(which * PIECE_SIZE, PIECE_SIZE)

    def _reach(self, end: int) -> File:
        """The file, created if needed and extended by a hole to at least `end` bytes."""
        file = self._file
        if file is None:
            if not self._exists:
                # The column may be the first file of its hour: the rows may still be in the tail.
                self._fs.mkdir(self._path.rpartition("/")[0])
            file = self._file = self._fs.open(self._path, create=not self._exists)
            self._exists = True
        if self._length < end:
            file.truncate(end)
            self._length = end
        return file

    # ------------------------------------------------------------------ flushing

    @property
    def dirty_pages(self) -> int:
        """Pages changed since they were last written."""
        return sum(int(np.count_nonzero(p.dirty)) for p in self._pieces.values())

    @property
    def dirty_end(self) -> int:
        """Number of the page after the last dirty page of the column; 0 without any."""
        for which, piece in sorted(self._pieces.items(), reverse=True):
            dirty = np.flatnonzero(piece.dirty)
            if len(dirty):
                return which * PIECE_PAGES + int(dirty[-1]) + 1
        return 0

    def collect(self, pages_max: int, start: int = 0, stop: int | None = None) -> StateRuns:
        """Copy up to `pages_max` dirty pages of the pages [start, stop), and mark them clean.

        They are in ascending order. A pass that continues after the pages it got (`behind`), up to
        the `dirty_end` at its beginning, ends even if pages become dirty again and the column
        grows.
        """
        self._dirty.changed[self] = None
        out: StateRuns = []
        left = pages_max
        stop = self.dirty_end if stop is None else stop
        for which, piece in sorted(self._pieces.items()):
            if left <= 0:
                break
            first_page = max(start - which * PIECE_PAGES, 0)
            stop_page = max(stop - which * PIECE_PAGES, 0)
            pages = (np.flatnonzero(piece.dirty[first_page:stop_page]) + first_page)[:left]
            if len(pages) == 0:
                continue
            left -= len(pages)
            raw = memoryview(piece.mapping.buffer)
            for first, count in page_runs(pages):
                at = first * PAGE_SIZE
                out.append((which, first, bytes(raw[at : at + count * PAGE_SIZE])))
            raw.release()
            piece.dirty[pages] = False
        return out

    @staticmethod
    def behind(runs: Sequence[StateRun]) -> int:
        """Number of the page after the last collected one."""
        which, first, data = runs[-1]
        return which * PIECE_PAGES + first + len(data) // PAGE_SIZE

    def write(self, runs: Sequence[StateRun]) -> None:
        """Write collected runs to the file, on any thread; call `settle` afterwards."""
        if not runs:
            return
        with self._writing:
            file = self._reach((max(which for which, _, _ in runs) + 1) * PIECE_SIZE)
            for which, first, data in runs:
                file.pwritev([data], which * PIECE_SIZE + first * PAGE_SIZE)

    def restore(self, runs: Sequence[StateRun]) -> None:
        """Mark collected runs dirty again after a failed write."""
        self._dirty.changed[self] = None
        for which, first, data in runs:
            self._pieces[which].dirty[first : first + len(data) // PAGE_SIZE] = True

    def settle(self) -> None:
        """Release every clean page to the kernel; the file has the same bytes."""
        for which, piece in list(self._pieces.items()):
            if isinstance(piece.mapping, Unbacked):
                # Each dirty page is copied, in 5 us. A piece that is being filled has many of them:
                # leave it to a later flush that finds few, most often the next one.
                if int(np.count_nonzero(piece.dirty)) <= _BACK_PAGES_MAX:
                    self._back(which, piece)
                continue
            dirty = np.flatnonzero(piece.dirty)
            for first, stop in pairwise([-1, *dirty.tolist(), PIECE_PAGES]):
                if stop - first > 1:
                    piece.mapping.forget((first + 1) * PAGE_SIZE, (stop - first - 1) * PAGE_SIZE)

    def _back(self, which: int, piece: Piece) -> None:
        """Replace an unbacked piece by a mapped one, if the file extends over it."""
        if not self._exists or (which + 1) * PIECE_SIZE > self._length:
            return
        mapped = Piece(self._map(which), path=self._path, which=which, fresh=False)
        mapped.touched = piece.touched
        for first, count in page_runs(np.flatnonzero(piece.dirty)):
            rows = slice(first * PAGE_ROWS, (first + count) * PAGE_ROWS)
            put_rows(mapped.entries, rows, piece.entries[rows])
        mapped.dirty = piece.dirty
        self._pieces[which] = mapped

    def punch(self, gone: Mask) -> None:
        """Punch holes for the pages whose rows are all `gone`, from row 1 on. Any thread.

        These rows are never read again, so pages in memory or being written may keep their states.
        """
        if not self._exists or self._length == 0:
            return
        pages = min(len(gone), self._length // STATE_ENTRY_SIZE) // PAGE_ROWS
        whole = np.flatnonzero(gone[: pages * PAGE_ROWS].reshape(-1, PAGE_ROWS).all(axis=1))
        with self._opened() as file:
            for first, count in page_runs(whole):
                file.punch(first * PAGE_SIZE, count * PAGE_SIZE)

    def sync(self) -> None:
        """Make written pages durable and close the file."""
        with self._writing:
            if self._file is None:
                return
            self._file.fdatasync()
            if self._has_new_name:
                # The sync of the hour's folder for its rows may have preceded this file. If this
                # one fails, the next sync repeats it.
                self._fs.sync_folder(self._path.rpartition("/")[0])
                self._has_new_name = False
            self._file.close()
            self._file = None

    def cut(self, count: int) -> None:
        """Remove the states after row `count`, for recovery: the replay restores them.

        An earlier recovery may have ended between the two steps of its cut, so a file that does not
        end with a whole piece is extended in any case.
        """
        self.drop_memory()
        if not self._exists:
            return
        with self._opened() as file:
            if self._length > count * STATE_ENTRY_SIZE:
                self._length = count * STATE_ENTRY_SIZE
                file.truncate(self._length)
            if self._length % PIECE_SIZE:
                self._length = -(-self._length // PIECE_SIZE) * PIECE_SIZE
                file.truncate(self._length)

    def drop_memory(self) -> None:
        """Unmap all pieces; changes that were not written are lost."""
        self._dirty.changed[self] = None
        for piece in self._pieces.values():
            del piece.entries
            piece.mapping.close()
        self._pieces.clear()

    def close(self) -> None:
        """Unmap and close the file. Unwritten changes are dropped."""
        self.drop_memory()
        self._dirty.forget(self)
        if self._file is not None:
            self._file.close()
            self._file = None


def _as_run(at: Int64Array) -> Int64Array | slice:
    """`at` as a slice if its values are consecutive, else `at`."""
    return slice(int(at[0]), int(at[-1]) + 1) if consecutive(at) else at


def _inside(indexes: Int64Array, run: slice | None) -> tuple[int, Int64Array | slice] | None:
    """(the piece with all rows, their places in it), or None if several pieces have them."""
    if run is None and consecutive(indexes):
        run = slice(int(indexes[0]), int(indexes[-1]) + 1)
    if run is not None:
        which = (run.start - 1) // PIECE_ROWS
        first = which * PIECE_ROWS + 1
        if run.stop - first > PIECE_ROWS:
            return None
        return which, slice(run.start - first, run.stop - first)
    which = (int(indexes.min()) - 1) // PIECE_ROWS
    first = which * PIECE_ROWS + 1
    return None if int(indexes.max()) - first >= PIECE_ROWS else (which, indexes - first)


def page_runs(pages: npt.NDArray[np.intp]) -> list[tuple[int, int]]:
    """Ascending page numbers as runs (first, count)."""
    if len(pages) == 0:
        return []
    cuts = np.flatnonzero(np.diff(pages) != 1) + 1
    starts = [0, *cuts.tolist()]
    ends = [*cuts.tolist(), len(pages)]
    return [(int(pages[a]), b - a) for a, b in zip(starts, ends, strict=True)]
