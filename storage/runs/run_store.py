"""A folder of sorted runs: which runs there are, how one is added, and when some are merged.

The file `index` lists the runs, and states up to which log position they are complete. It is
replaced durably, so a run that was begun and is not listed counts for nothing. The runs are a cache
of the delay indexes: a damaged folder is emptied. What entries mean, and which of them a merge
keeps, is left to the class that inherits (`ids/id_index.py`, `texts/text_index.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import msgpack

from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.files.whole_files import read_file, replace_file
from delaylog.storage.layout import Int64Array, open_file, seal_parts
from delaylog.storage.runs.key_run import (
    SLICE_ENTRIES,
    KeyArray,
    KeyRun,
    RunWriter,
    entries_between,
)

Entries = tuple[KeyArray, Int64Array]
"""Keys and refs."""
Kept = Callable[[KeyArray, Int64Array], Entries]
"""The entries that a merge keeps, in the order of their keys, of those of neighbouring runs, oldest
first. It is called for ranges of keys, so it has all entries of a key."""
Jobs = Generator[Callable[[], None], None, None]
"""Jobs for any thread, one after the other."""
INDEX: Final = "index"
_MAGIC: Final = 0x58494C44  # "DLIX"
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
    opened = open_file(_MAGIC, read_file(fs, file))
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
            head = seal_parts(_MAGIC, parts, a=position)
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
