"""State column: one 32-byte entry per row of an hour, per consumer group.

The file is mapped copy-on-write in pieces of one size, so changes are made in memory and do not
reach the file by themselves. Dirty pages are copied (`collect`), written with pwrite once the
frames of their changes are committed (`write`), and released to the kernel (`settle`). A hole or a
missing file reads as zeros: the row was never delivered. Pieces beyond the end of the file are in
plain memory, so storing a state never needs the disk.

Entries are sealed when they are stored and verified when they are read (state_seal.py); callers see
their seals as zero. A replay only stores entries, so it never reads an entry that a crash has torn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns.questions import Mask, consecutive, distinct
from delaylog.storage.columns.whole_rows import put_rows, take_rows
from delaylog.storage.files.file_system import File, FileSystem, Mapping
from delaylog.storage.hours.states.dirty_columns import DirtyColumns
from delaylog.storage.hours.states.piece import (
    PAGE_ROWS,
    PAGE_SIZE,
    PIECE_PAGES,
    PIECE_ROWS,
    PIECE_SIZE,
    Piece,
    Unbacked,
)
from delaylog.storage.hours.states.state_seal import sealed
from delaylog.storage.layout import STATE_ENTRY, STATE_ENTRY_SIZE, Int64Array, StateArray

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
        self._dirty.changed.add(self)
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
        self._dirty.changed.add(self)
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
        self._dirty.changed.add(self)
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
        self._dirty.changed.add(self)
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
        self._dirty.changed.add(self)
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
