"""Id index: client-chosen ids -> newest origin ref, on disk, with bounded memory.

A hint, never a truth: every hit is checked against the row (epoch tag, id, topic) before it
decides anything. Recent ids live in memory; a checkpoint writes them as a sorted run (`id_run.py`),
and runs of alike sizes are merged in the background. A filter in memory spares new ids the look-up
in runs. The runs are a cache of the delay indexes, and the file `index` says which ones there are
and up to which log position they are whole; what is missing, behind, damaged or of an earlier
release is made anew from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import msgpack
import numpy as np
import numpy.typing as npt

from delaylog.storage.columns.questions import every
from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.files.whole_files import read_file, replace_file
from delaylog.storage.ids.id_filter import IdFilter
from delaylog.storage.ids.id_merge import add_all, in_key_order, keys_of, lasts, merge_runs, newest
from delaylog.storage.ids.id_run import SLICE_IDS, IdRun, RunWriter
from delaylog.storage.ids.recent_ids import KeyArray, RecentIds
from delaylog.storage.layout import Int64Array, RowArray, open_file, seal_parts

Jobs = Generator[Callable[[], None], None, None]
"""Jobs for any thread, one after the other."""
OwnedIds = npt.NDArray[np.void]
OWNED_ID: Final = np.dtype([("topic", "<u4"), ("id_hash", "<u8"), ("origin", "<i8")])
"""An id and the origin of the message that it is removed for."""
INDEX: Final = "index"
_MAGIC: Final = 0x58494C44  # "DLIX"
MERGED_RUNS: Final = 4
"""So many neighbours of one size, or smaller, become one: a run is rewritten once for each factor
of four by which the index grows."""
SIZE_MIN: Final = 16_384
"""Runs of fewer ids count as of one size, and are merged for their number alone."""
FILTER_FILLED_MAX: Final = 1.5
"""A filter is made anew, at two bytes an id, when it holds more than so many times as many."""
FILTER_SPARE_MAX: Final = 2
"""And after a merge that leaves so many times fewer ids than it was given."""
REST_TOUCHES: Final = 4_096
"""After so many look-ups in runs their pages are given back: each may have touched one of its own,
with which the kernel maps the fifteen around it, and all of those count as resident."""


class StoredIds(NamedTuple):
    """What the file `index` says."""

    position: int
    """Every id of frames below this log position is in the runs."""
    runs: list[tuple[int, int]]
    """(number, ids) of each, oldest first: the newest run that has a key counts."""


def run_path(path: str, number: int) -> str:
    """The file of a run."""
    return f"{path}/{number}.ids"


def read_stored(fs: FileSystem, path: str) -> StoredIds:
    """The file `index` of an id index. Raises CorruptionError when it is not the one written."""
    file = f"{path}/{INDEX}"
    opened = open_file(_MAGIC, read_file(fs, file))
    if opened is None:
        raise CorruptionError("a damaged id index", path=file, position=0)
    payload, position, _ = opened
    return StoredIds(position, [(number, count) for number, count in msgpack.unpackb(payload)])


def open_runs(fs: FileSystem, path: str, stored: StoredIds) -> list[IdRun]:
    """The runs of an id index. Raises CorruptionError when one is missing or its header damaged."""
    runs = []
    for number, count in stored.runs:
        name = run_path(path, number)
        if not fs.exists(name):
            raise CorruptionError("a run of ids is missing", path=name, position=0)
        runs.append(IdRun(fs, name, number, count))
    return runs


class IdIndex:
    """(topic, id hash) -> ref."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._recent = RecentIds()
        self._flushing: list[RecentIds] = []
        """What was set aside, oldest first: several after a flush that was cut short."""
        self._filter = IdFilter(0)
        self._runs: list[IdRun] = []
        self._number = 0
        """Of the newest run that was begun; a number is used once."""
        self.position = 0
        """Every id of frames below this log position is stored."""
        self._touched = 0
        self.set_aside = ""
        """Why an earlier index was removed at this start, if one was."""
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
        stored = StoredIds(0, [])
        if INDEX in names:
            stored = read_stored(fs, path)
        elif "data.mdb" in names:
            raise CorruptionError("an id index of an earlier release", path=path, position=0)
        self._runs = open_runs(fs, path, stored)
        self._filter = IdFilter(sum(run.count for run in self._runs))
        for run in self._runs:
            for keys in run.check(fs):
                self._filter.add(keys)
        self._remove_others()
        self._number = max((run.number for run in self._runs), default=0)
        self.position = stored.position

    def _remove_others(self) -> None:
        """Remove what is not among the runs: a flush or a merge may have been cut short."""
        self._remove_files_but([INDEX, *(f"{run.number}.ids" for run in self._runs)])

    def _remove_files_but(self, kept: Collection[str]) -> None:
        """Remove files of this index, and of that of earlier releases; others may be here."""
        for name in sorted(set(self._fs.listdir(self._path)) - set(kept)):
            if name.endswith((".ids", ".mdb")) or name.startswith(INDEX):
                self._fs.unlink(f"{self._path}/{name}")

    # ------------------------------------------------------------------ look-ups and puts

    @property
    def recent_count(self) -> int:
        """Ids that wait in memory for the next checkpoint."""
        return self._recent.count

    def put(self, topic: int, hashes: npt.NDArray[np.uint64], refs: Int64Array) -> None:
        """Remember messages, each as the newest of its id; a hash of 0 stands for no id."""
        if not every(hashes):
            named = np.flatnonzero(hashes)
            hashes, refs = hashes[named], refs[named]
        self._recent.put(keys_of(topic, hashes), refs)

    def put_rows(self, rows: RowArray, refs: Int64Array) -> None:
        """Remember the rows that have a client-chosen id and are their own origin."""
        mine = np.flatnonzero((rows["id_hash"] != 0) & (rows["origin"] == refs))
        if len(mine):
            self._recent.put(keys_of(rows["topic"][mine], rows["id_hash"][mine]), refs[mine])

    def get_column(self, topic: int, hashes: npt.NDArray[np.uint64]) -> Int64Array:
        """A ref per hash, 0 where there is none."""
        keys = keys_of(topic, hashes)
        out = self._recent.get(keys)
        for table in reversed(self._flushing):
            missing = np.flatnonzero(out == 0)
            out[missing] = table.get(keys[missing])
        if self._runs:
            passing = self._filter.passing(keys)
            if len(passing):
                passing = passing[out[passing] == 0]
                out[passing] = self._look_up(keys[passing])
                self._touched += len(passing)
                if self._touched >= REST_TOUCHES:
                    self._touched = 0
                    self._rest()
        return out

    def _look_up(self, keys: KeyArray) -> Int64Array:
        """A ref per key from the runs, 0 where there is none."""
        out = np.zeros(len(keys), np.int64)
        # In their order in the runs neighbours share pages.
        left = np.argsort(keys)
        keys = keys[left]
        for run in reversed(self._runs):
            if len(left) == 0:
                break
            places, refs = run.find(keys)
            if len(places):
                out[left[places]] = refs
                rest = np.ones(len(left), np.bool_)
                rest[places] = False
                left, keys = left[rest], keys[rest]
        return out

    def _rest(self) -> None:
        for run in self._runs:
            run.rest()

    # ------------------------------------------------------------------ storing

    def begin_flush(self) -> None:
        """Set the recent ids aside for `write_flush`; look-ups still find them."""
        if self._recent.count:
            self._flushing.append(self._recent)
            self._recent = self._recent.successor()

    def write_flush(self, position: int) -> None:
        """Store what was set aside, durably, all at once; for whoever has nothing beside it."""
        for jobs in (self.flush_jobs(position), self.merge_jobs()):
            for job in jobs:
                job()

    def flush_jobs(self, position: int) -> Jobs:
        """Store what was set aside, durably; the last job says up to where the index is whole."""
        box: list[tuple[KeyArray, Int64Array]] = []
        yield lambda: box.append(newest(self._flushing))
        yield from self._push(*box.pop(), position)

    def end_flush(self) -> None:
        """Forget what is stored now."""
        self._flushing = []

    def _push(self, keys: KeyArray, refs: Int64Array, position: int) -> Jobs:
        """Store ids, given in the order of their keys, as the newest run."""
        runs = list(self._runs)
        if len(keys):
            parts = [slice(at, at + SLICE_IDS) for at in range(0, len(keys), SLICE_IDS)]
            jobs = [partial(add_all, keys[part], refs[part]) for part in parts]
            yield from self._write(len(keys), jobs, runs)
            yield from self._let_pass(keys, runs)
        yield from self._keep(runs, position)

    def _write(
        self, room: int, jobs: Sequence[Callable[[RunWriter], None]], runs: list[IdRun]
    ) -> Jobs:
        """Write a run by jobs, and append it to the others unless it is empty."""
        self._number = number = self._number + 1
        path = run_path(self._path, number)
        writer = RunWriter(self._fs, path, room)
        try:
            for job in jobs:
                yield partial(job, writer)
            if writer.count:
                yield writer.finish
                # The name of a run is durable before `index` says it.
                yield partial(self._fs.sync_folder, self._path)
                runs.append(IdRun(self._fs, path, number, writer.count))
        except DiskFullError:
            self._fs.unlink(path)
            raise
        finally:
            writer.close()

    def _let_pass(self, keys: KeyArray, runs: Sequence[IdRun]) -> Jobs:
        """Let ids that were stored pass the filter; it is made anew where it is too full."""
        filter_ = self._filter
        if filter_.count + len(keys) <= filter_.capacity * FILTER_FILLED_MAX:
            for first in range(0, len(keys), SLICE_IDS):
                yield partial(filter_.add, keys[first : first + SLICE_IDS])
        else:
            yield from self._make_filter(runs)

    def _make_filter(self, runs: Sequence[IdRun]) -> Jobs:
        filter_ = IdFilter(sum(run.count for run in runs))
        for run in runs:
            for part, _ in run.slices():
                yield partial(filter_.add, part)
        self._filter = filter_

    def _keep(self, runs: list[IdRun], position: int) -> Jobs:
        """Let these be the runs, durably, and remove the others."""

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

    # ------------------------------------------------------------------ merging and forgetting

    @property
    def crowded(self) -> bool:
        """Whether runs are to be merged."""
        return self._crowded() is not None

    def _crowded(self) -> int | None:
        """Where the newest runs begin that are to be merged, if there are enough of them."""
        counts = [run.count for run in self._runs]
        if len(counts) > 1 and sum(counts[1:]) >= max(counts[0], SIZE_MIN):
            # What was forgotten leaves only with the oldest run. Growth doubles it each time.
            return 0
        sizes = [max(count, SIZE_MIN).bit_length() // 2 for count in counts]
        for size in sorted(set(sizes)):
            start = len(sizes)
            while start and sizes[start - 1] <= size:
                start -= 1
            if len(sizes) - start >= MERGED_RUNS:
                return start
        return None

    def merge_jobs(self) -> Jobs:
        """Merge runs of alike sizes until there are few of them."""
        while (start := self._crowded()) is not None:
            old = self._runs[start:]
            room = sum(run.count for run in old)
            pieces = room // SLICE_IDS + 1
            bounds = [(piece << 64) // pieces for piece in range(pieces + 1)]
            jobs = [
                partial(merge_runs, old, first, stop - 1, keep_forgotten=start > 0)
                for first, stop in pairwise(bounds)
            ]
            runs = self._runs[:start]
            yield from self._write(room, jobs, runs)
            if sum(run.count for run in runs) * FILTER_SPARE_MAX <= self._filter.count:
                yield from self._make_filter(runs)
            yield from self._keep(runs, self.position)

    def forget_jobs(self, owned: Sequence[OwnedIds]) -> Jobs:
        """Remove stored ids, durably, unless a newer message took the id."""
        if not owned:
            return
        ordered: list[tuple[KeyArray, Int64Array]] = []
        gone: list[KeyArray] = []
        forgotten: list[KeyArray] = []

        def order() -> None:
            whole = np.concatenate(owned)
            keys = keys_of(whole["topic"], whole["id_hash"])
            ordered.append(in_key_order(keys, whole["origin"].astype(np.int64)))

        def look(keys: KeyArray, origins: Int64Array) -> None:
            gone.append(keys[self._look_up(keys) == origins])
            self._rest()

        yield order
        keys, origins = ordered.pop()
        for first in range(0, len(keys), SLICE_IDS):
            part = slice(first, first + SLICE_IDS)
            yield partial(look, keys[part], origins[part])

        def join() -> None:
            # A row that moved within its hour names the same message again.
            found = np.concatenate(gone)
            forgotten.append(found[lasts(found)])

        yield join
        if len(keys := forgotten[0]):
            yield from self._push(keys, np.zeros(len(keys), np.int64), self.position)

    def clear(self) -> None:
        """Empty the index before a rebuild."""
        for job in self._keep([], 0):
            job()
        self._recent, self._flushing, self._filter = RecentIds(), [], IdFilter(0)

    def close(self) -> None:
        """Unmap the runs."""
        for run in self._runs:
            run.close()
        self._runs = []
