"""Sorted runs of keys and refs: immutable files, and a folder of them whose runs are merged.

A run is written once, in the order of its keys, and never changed; a merge writes a new one. The
number of entries need not be known in advance: the refs begin behind the room for the most keys
that there may be, and the unused part of this room is a hole in the file.

    0       _HEADER (64): magic u32, version u16, 2 zeros, count u64, room u64, crc32c u32 of the
            keys, of the refs, and of this header with zeros in place of the last one; 28 zeros
    64      keys u64, ascending
    64+8r   refs i64 in the same order, where r is the room; 0 = the id with this key was forgotten

The file `index` of a folder lists the runs, and states up to which log position they are complete.
It is replaced durably, so a run that was begun and is not listed counts for nothing. The runs are a
cache of the delay indexes: a damaged folder is emptied. What entries mean, and which of them a
merge keeps, is left to the class that inherits (`id_index.py`, `text_index.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import msgpack
import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.files.file_system import FileSystem, parent_of, read_file, replace_file
from delaylog.storage.layout import Int64Array, open_file, seal_parts

# -------------------------------------------------------------------------------------- one run

KeyArray = npt.NDArray[np.uint64]
_HEADER: Final = struct.Struct("<IH2xQQIII28x")
assert _HEADER.size == 64
_RUN_MAGIC: Final = 0x52494C44  # "DLIR"
_VERSION: Final = 1
_WIDTH: Final = 8
SLICE_ENTRIES: Final = 32_768
"""Entries that one job reads, sorts or writes: at most 10 ms of work."""


class RunWriter:
    """Writes a run; on any thread, one call at a time."""

    def __init__(self, fs: FileSystem, path: str, room: int) -> None:
        """`room` = most entries of the run. A file that an earlier attempt left is overwritten."""
        self._file = fs.open(path, create=True)
        self._room = room
        self._crcs = [0, 0]
        self.count = 0

    def add(self, keys: KeyArray, refs: Int64Array) -> None:
        """Append the next entries, in the order of their keys."""
        starts = (_HEADER.size, _HEADER.size + self._room * _WIDTH)
        for which, column in enumerate((keys.astype("<u8"), refs.astype("<i8"))):
            raw = column.tobytes()
            if raw:
                at = starts[which] + self.count * _WIDTH
                self._file.pwritev([raw], at)
                self._file.begin_writing(at, len(raw))
                self._crcs[which] = crc32c(raw, self._crcs[which])
        self.count += len(keys)
        assert self.count <= self._room, "a run has at most as many entries as it has room for"

    def finish(self) -> None:
        """Make the run's bytes durable; its name becomes durable when the folder is synced."""
        head = (_RUN_MAGIC, _VERSION, self.count, self._room, *self._crcs)
        self._file.truncate(_HEADER.size + (self._room + self.count) * _WIDTH)
        self._file.pwritev([_HEADER.pack(*head, crc32c(_HEADER.pack(*head, 0)))], 0)
        self._file.fdatasync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class KeyRun:
    """A run, mapped into memory; `rest` releases its resident pages."""

    def __init__(
        self, fs: FileSystem, path: str, number: int = 0, count: int | None = None
    ) -> None:
        """`count` = the entries that the run must have, if known. Only the header is verified.

        Raises CorruptionError if the header is damaged; `check` verifies the rest.
        """
        self.number = number
        self._path = path
        with closing(fs.open(path)) as file:
            self.size = file.size()
            raw = file.pread(_HEADER.size, 0)
            fields = _HEADER.unpack(raw) if len(raw) == _HEADER.size else (0,) * 7
            magic, version, stored, room, self._keys_crc, self._refs_crc, crc = fields
            self.count = count = stored if count is None else count
            whole = (magic, version, stored) == (_RUN_MAGIC, _VERSION, count)
            whole = whole and raw == _HEADER.pack(*fields)
            whole = whole and crc == crc32c(_HEADER.pack(*fields[:-1], 0))
            if not whole or count < 1 or self.size != _HEADER.size + (room + count) * _WIDTH:
                raise CorruptionError("a damaged run of ids", path=path, position=0)
            self._map = file.map_read(0, self.size)
        self._refs_start = _HEADER.size + room * _WIDTH
        self.keys: KeyArray = np.frombuffer(self._map.buffer, "<u8", count, _HEADER.size)
        """A view of the mapped file."""
        self.refs: Int64Array = np.frombuffer(self._map.buffer, "<i8", count, self._refs_start)

    def slices(self) -> Iterator[tuple[KeyArray, Int64Array]]:
        """Keys and refs, part by part, as views; the pages of a part are released after it."""
        for first in range(0, self.count, SLICE_ENTRIES):
            part = slice(first, first + SLICE_ENTRIES)
            yield self.keys[part], self.refs[part]
            self.rest()

    def check(self, fs: FileSystem) -> Iterator[KeyArray]:
        """Yield the keys, part by part, then raise CorruptionError if a checksum is wrong.

        The file is read, not accessed through the map, where a bad sector would kill the process.
        """
        with closing(fs.open(self._path)) as file:
            for start, wanted in (
                (_HEADER.size, self._keys_crc),
                (self._refs_start, self._refs_crc),
            ):
                crc = 0
                for first in range(0, self.count, SLICE_ENTRIES):
                    size = min(SLICE_ENTRIES, self.count - first) * _WIDTH
                    raw = file.pread(size, start + first * _WIDTH)
                    crc = crc32c(raw, crc)
                    if start == _HEADER.size:
                        yield np.frombuffer(raw, "<u8")
                if crc != wanted:
                    raise CorruptionError("a damaged run of ids", path=self._path, position=start)

    def find(self, keys: KeyArray) -> tuple[Int64Array, Int64Array]:
        """(places of the keys found here, their refs); ascending keys share pages."""
        at = np.searchsorted(self.keys, keys)
        at[at == self.count] = 0
        places = np.flatnonzero(self.keys[at] == keys)
        return places, self.refs[at[places]]

    def rest(self) -> None:
        """Release the pages of the map, since they count as resident memory."""
        self._map.forget(0, self.size)

    def close(self) -> None:
        """Unmap."""
        self.keys, self.refs = self.keys[:0].copy(), self.refs[:0].copy()
        self._map.close()


def entries_between(runs: Sequence[KeyRun], first: int, last: int) -> tuple[KeyArray, Int64Array]:
    """The keys from `first` to `last`, both included, and their refs, run by run."""
    parts = []
    for run in runs:
        start = int(np.searchsorted(run.keys, np.uint64(first)))
        stop = int(np.searchsorted(run.keys, np.uint64(last), side="right"))
        parts.append((run.keys[start:stop], run.refs[start:stop]))
    keys = np.concatenate([part[0] for part in parts])
    refs = np.concatenate([part[1] for part in parts])
    for run in runs:
        run.rest()
    return keys, refs


# ----------------------------------------------------------------------------- a folder of runs

Entries = tuple[KeyArray, Int64Array]
"""Keys and refs."""
Kept = Callable[[KeyArray, Int64Array], Entries]
"""The entries that a merge keeps, in the order of their keys, of those of neighbouring runs, oldest
first. It is called for ranges of keys, so it has all entries of a key."""
Jobs = Generator[Callable[[], None], None, None]
"""Jobs for any thread, one after the other."""
INDEX: Final = "index"
_INDEX_MAGIC: Final = 0x58494C44  # "DLIX"
MERGED_RUNS: Final = 4
"""Neighbouring runs of one size, or smaller, that are merged into one: a run is rewritten once
each time the index grows fourfold."""
SIZE_MIN: Final = 16_384
"""Runs with fewer entries count as of one size; only their number decides about merging them."""


class StoredRuns(NamedTuple):
    """The content of the file `index`."""

    position: int
    """Everything of frames below this log position is in the runs."""
    runs: list[tuple[int, int]]
    """(number, entries) of each run, oldest first."""


def run_path(path: str, number: int) -> str:
    """The file of a run."""
    return f"{path}/{number}.ids"


def read_stored(fs: FileSystem, path: str) -> StoredRuns:
    """The content of the file `index` in a folder. Raises CorruptionError if it is damaged."""
    file = f"{path}/{INDEX}"
    opened = open_file(_INDEX_MAGIC, read_file(fs, file))
    if opened is None:
        raise CorruptionError("a damaged index of runs", path=file, position=0)
    payload, position, _ = opened
    return StoredRuns(position, [(number, count) for number, count in msgpack.unpackb(payload)])


def open_runs(fs: FileSystem, path: str, stored: StoredRuns) -> list[KeyRun]:
    """The runs of a folder.

    Raises CorruptionError when a run is missing or its header is damaged.
    """
    runs: list[KeyRun] = []
    try:
        for number, count in stored.runs:
            name = run_path(path, number)
            if not fs.exists(name):
                raise CorruptionError("a run is missing", path=name, position=0)
            runs.append(KeyRun(fs, name, number, count))
    except BaseException:
        for run in runs:
            run.close()
        raise
    return runs


class RunStore:
    """The runs of one folder."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._runs: list[KeyRun] = []
        self._number = 0
        """The number of the newest run that was begun; no number is used twice."""
        self.position = 0
        """Everything of frames below this log position is stored."""
        self.set_aside = ""
        """Why this start removed the runs that it found, or ""."""
        try:
            self._load()
        except (CorruptionError, DiskFailedError) as error:
            self.set_aside = str(error)
            self.close()
            self._remove_files_but(())
            self._load()

    def _load(self) -> None:
        fs, path = self._fs, self._path
        if not fs.exists(path):
            fs.mkdir(path)
            fs.sync_folder(parent_of(path))
        names = set(fs.listdir(path))
        stored = StoredRuns(0, [])
        if INDEX in names:
            stored = read_stored(fs, path)
        self._runs = open_runs(fs, path, stored)
        self._check_loaded()
        self._remove_others()
        self._number = max((run.number for run in self._runs), default=0)
        self.position = stored.position

    def _check_loaded(self) -> None:
        """Verify the runs that were found, as far as the start waits for that."""

    def _remove_others(self) -> None:
        """Remove files of runs that are not listed: a flush or a merge may have been cut short."""
        self._remove_files_but([INDEX, *(f"{run.number}.ids" for run in self._runs)])

    def _remove_files_but(self, kept: Collection[str]) -> None:
        """Remove files of this index, but no other files."""
        for name in sorted(set(self._fs.listdir(self._path)) - set(kept)):
            if name.endswith(".ids") or name.startswith(INDEX):
                self._fs.unlink(f"{self._path}/{name}")

    def _write(
        self, room: int, jobs: Sequence[Callable[[RunWriter], None]], runs: list[KeyRun]
    ) -> Jobs:
        """Write a run by jobs, and append it to `runs` unless it is empty."""
        self._number = number = self._number + 1
        path = run_path(self._path, number)
        writer = RunWriter(self._fs, path, room)
        try:
            for job in jobs:
                yield partial(job, writer)
            if writer.count:
                yield writer.finish
                # The name of a run is durable before `index` lists it.
                yield partial(self._fs.sync_folder, self._path)
                runs.append(KeyRun(self._fs, path, number, writer.count))
        except DiskFullError:
            self._fs.unlink(path)
            raise
        finally:
            writer.close()

    def _keep(self, runs: list[KeyRun], position: int) -> Jobs:
        """Make `runs` the runs of the folder, durably, and remove all others."""

        def write() -> None:
            parts = [msgpack.packb([(run.number, run.count) for run in runs])]
            head = seal_parts(_INDEX_MAGIC, parts, a=position)
            replace_file(self._fs, f"{self._path}/{INDEX}", [head, *parts])
            self._fs.sync_folder(self._path)

        yield write
        for run in self._runs:
            if run not in runs:
                run.close()
        self._runs, self.position = runs, position
        yield self._remove_others

    def _store(self, keys: KeyArray, refs: Int64Array, runs: list[KeyRun]) -> Jobs:
        """Write entries, given in the order of their keys, as the newest of `runs`."""

        def add(part: slice, writer: RunWriter) -> None:
            writer.add(keys[part], refs[part])

        parts = [slice(at, at + SLICE_ENTRIES) for at in range(0, len(keys), SLICE_ENTRIES)]
        yield from self._write(len(keys), [partial(add, part) for part in parts], runs)

    def _merge(
        self,
        kept: Callable[[int], Kept],
        made: Callable[[Sequence[KeyRun]], Jobs] | None = None,
    ) -> Jobs:
        """Merge runs of similar sizes until few are left.

        `kept` is called with the number of older runs that are not in the merge, and `made` with
        the new runs before they count.
        """
        while (start := self._crowded()) is not None:
            old, keep = self._runs[start:], kept(start)
            room = sum(run.count for run in old)
            # Keys are hashes, so ranges of one width have about as many.
            pieces = room // SLICE_ENTRIES + 1
            bounds = [(piece << 64) // pieces for piece in range(pieces + 1)]
            runs = self._runs[:start]
            ranges = [(first, stop - 1) for first, stop in pairwise(bounds)]
            jobs = [partial(_merge_range, old, keep, *each) for each in ranges]
            yield from self._write(room, jobs, runs)
            if made is not None:
                yield from made(runs)
            yield from self._keep(runs, self.position)

    def _clear(self) -> None:
        """Remove all runs before a rebuild."""
        for job in self._keep([], 0):
            job()

    @property
    def crowded(self) -> bool:
        """Whether runs are to be merged."""
        return self._crowded() is not None

    def _crowded(self) -> int | None:
        """The first of the newest runs that are to be merged, or None if they are too few."""
        counts = [run.count for run in self._runs]
        if len(counts) > 1 and sum(counts[1:]) >= max(counts[0], SIZE_MIN):
            # Entries that count no more are dropped only in a merge with the oldest run. Since this
            # waits for as many entries behind it, a growing oldest run doubles each time.
            return 0
        sizes = [max(count, SIZE_MIN).bit_length() // 2 for count in counts]
        for size in sorted(set(sizes)):
            start = len(sizes)
            while start and sizes[start - 1] <= size:
                start -= 1
            if len(sizes) - start >= MERGED_RUNS:
                return start
        return None

    def close(self) -> None:
        """Unmap the runs."""
        for run in self._runs:
            run.close()
        self._runs = []


def _merge_range(
    runs: Sequence[KeyRun], keep: Kept, first: int, last: int, writer: RunWriter
) -> None:
    """Merge the entries with keys from `first` to `last`, both included."""
    writer.add(*keep(*entries_between(runs, first, last)))
