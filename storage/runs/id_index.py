"""Id index: client-chosen ids -> newest origin ref, on disk, with bounded memory.

The index is a hint: every hit is checked against the row (epoch tag, id, topic) before it decides
anything. Recent ids are in memory; a checkpoint writes them as a sorted run, and runs of similar
sizes are merged in the background (run_store.py). Of several runs that have a key, the newest
decides. Ids that are missing, for positions behind the runs' or because the index was damaged, are
added again from the rows.

A filter in memory saves the look-up in runs for most new ids: "no" is certain, "perhaps" costs a
look-up on disk. It is a blocked Bloom filter of 64-bit words, with two bytes of memory for each id
of its capacity. A key sets five bits in one word. The upper half of a key chooses the word, so keys
in ascending order touch the words in ascending order; the lowest twelve bits choose the five bits.
A filter filled to its capacity passes one absent key in three hundred. Keys cannot be removed. One
thread may add while another one looks up: each word is written atomically, and until their add is
complete, look-ups find the keys in memory.

The ids of an ended hour are forgotten in jobs for a worker thread. Ids are hashes, so those of
consecutive rows are spread over the whole index. They are gathered and sorted by key first: then
each job looks up neighbouring keys, which share pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns import every
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.layout import HOUR_SHIFT, Int64Array, RowArray
from delaylog.storage.runs.recent_ids import (
    FEW_KEYS_MAX,
    RecentIds,
    in_key_order,
    keys_of,
    keys_of_few,
    lasts,
    newest,
    newest_of_each,
)
from delaylog.storage.runs.run_store import SLICE_ENTRIES, Jobs, KeyArray, KeyRun, RunStore
from delaylog.storage.work import Work

# ----------------------------------------------------------------------------------- the filter

BYTES_AN_ID: Final = 2
COUNT_MIN: Final = 32_768
"""Least capacity of a filter."""
_BITS: Final = 5
_PATTERNS: Final = 4_096
_LOW: Final = np.uint64(_PATTERNS - 1)
_32: Final = np.uint64(32)


def _patterns() -> npt.NDArray[np.uint64]:
    random = np.random.default_rng(1)
    bits = random.permuted(np.tile(np.arange(64, dtype=np.uint64), (_PATTERNS, 1)), axis=1)
    patterns: npt.NDArray[np.uint64] = np.bitwise_or.reduce(np.uint64(1) << bits[:, :_BITS], axis=1)
    return patterns


_PATTERN: Final = _patterns()
_PATTERN_SINGLY: Final = _PATTERN.tolist()


class IdFilter:
    """A filter for `count` keys, or COUNT_MIN. With more keys it passes more absent ones."""

    def __init__(self, count: int) -> None:
        self.capacity = max(count, COUNT_MIN)
        self.count = 0
        """Keys that were added."""
        self._words = np.zeros(self.capacity * BYTES_AN_ID // 8, np.uint64)
        self._words_singly = self._words.data

    @property
    def size_bytes(self) -> int:
        """Memory of the filter."""
        return self._words.nbytes

    def _places(self, keys: KeyArray) -> Int64Array:
        return ((keys >> _32) * np.uint64(len(self._words)) >> _32).view(np.int64)

    def add(self, keys: KeyArray) -> None:
        """Let these keys pass from now on. Ascending keys are added fastest."""
        np.bitwise_or.at(self._words, self._places(keys), _PATTERN[(keys & _LOW).view(np.int64)])
        self.count += len(keys)

    def passing(self, keys: KeyArray) -> Int64Array:
        """The places of the keys that may be stored, ascending."""
        if len(keys) <= FEW_KEYS_MAX:
            return np.array(self.passing_few(keys.tolist()), np.int64)
        patterns = _PATTERN[(keys & _LOW).view(np.int64)]
        return np.flatnonzero(self._words[self._places(keys)] & patterns == patterns)

    def passing_few(self, keys: Sequence[int]) -> list[int]:
        """The same for a few keys."""
        words, size, pattern = self._words_singly, len(self._words), _PATTERN_SINGLY
        return [
            place
            for place, key in enumerate(keys)
            if not pattern[key & _PATTERNS - 1] & ~words[(key >> 32) * size >> 32]
        ]


# ------------------------------------------------------------------------------------ the index

OwnedIds = npt.NDArray[np.void]
OWNED_ID: Final = np.dtype([("topic", "<u4"), ("id_hash", "<u8"), ("origin", "<i8")])
"""An id and the origin of the ended message whose id it was."""
FILTER_FILLED_MAX: Final = 1.5
"""A filter is rebuilt, at two bytes an id, before it has more keys than its capacity times this."""
FILTER_SPARE_MAX: Final = 2
"""A filter is rebuilt, too, after a merge, if it has this many times as many keys as ids are left.
"""
REST_TOUCHES: Final = 4_096
"""After this number of look-ups in runs, the runs release their pages. Each look-up may have
touched another page; the kernel maps the fifteen around it too, and all count as resident."""


class IdIndex(RunStore):
    """(topic, id hash) -> ref."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._recent = RecentIds()
        self._flushing: list[RecentIds] = []
        """Ids set aside for a flush, oldest first: several tables after a flush that failed."""
        self._filter = IdFilter(0)
        self._touched = 0
        super().__init__(fs, path)

    def _check_loaded(self) -> None:
        self._filter = IdFilter(sum(run.count for run in self._runs))
        for run in self._runs:
            for keys in run.check(self._fs):
                self._filter.add(keys)

    # ------------------------------------------------------------------ look-ups and puts

    @property
    def recent_count(self) -> int:
        """Ids that wait in memory for the next checkpoint."""
        return self._recent.count

    def put(self, topic: int, hashes: npt.NDArray[np.uint64], refs: Int64Array) -> None:
        """Store each message as the newest one with its id; a hash of 0 means no id."""
        if not every(hashes):
            named = np.flatnonzero(hashes)
            hashes, refs = hashes[named], refs[named]
        self._recent.put(keys_of(topic, hashes), refs)

    def put_few(self, topic: int, hashes: Sequence[int], refs: Sequence[int]) -> None:
        """The same for a few messages, all of which have an id."""
        self._recent.put_few(keys_of_few(topic, hashes), refs)

    def put_rows(self, rows: RowArray, refs: Int64Array) -> None:
        """Store the rows that have a client-chosen id and are their own origin."""
        mine = np.flatnonzero((rows["id_hash"] != 0) & (rows["origin"] == refs))
        if len(mine):
            self._recent.put(keys_of(rows["topic"][mine], rows["id_hash"][mine]), refs[mine])

    def get_column(self, topic: int, hashes: npt.NDArray[np.uint64]) -> Int64Array:
        """A ref for each hash, 0 where there is none."""
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

    def get_few(self, topic: int, hashes: Sequence[int]) -> list[int]:
        """The same for a few hashes."""
        keys = keys_of_few(topic, hashes)
        out = self._recent.get_few(keys)
        for table in reversed(self._flushing):
            out = [ref or old for ref, old in zip(out, table.get_few(keys), strict=True)]
        if self._runs and any(not out[place] for place in self._filter.passing_few(keys)):
            out = self.get_column(topic, np.array(hashes, np.uint64)).tolist()
        return out

    def _look_up(self, keys: KeyArray) -> Int64Array:
        """A ref for each key from the runs, 0 where there is none."""
        out = np.zeros(len(keys), np.int64)
        # In ascending order neighbouring keys share pages of a run.
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
        """Store the ids set aside, durably, in one call; for callers with no other work waiting."""
        for jobs in (self.flush_jobs(position), self.merge_jobs()):
            for job in jobs:
                job()

    def flush_jobs(self, position: int) -> Jobs:
        """Store the ids set aside, durably; the index is then complete up to `position`."""
        box: list[tuple[KeyArray, Int64Array]] = []
        yield lambda: box.append(newest(self._flushing))
        yield from self._push(*box.pop(), position)

    def end_flush(self) -> None:
        """Drop the tables that the flush has stored."""
        self._flushing = []

    def _push(self, keys: KeyArray, refs: Int64Array, position: int) -> Jobs:
        """Store ids, given in the order of their keys, as the newest run."""
        runs = list(self._runs)
        if len(keys):
            yield from self._store(keys, refs, runs)
            yield from self._let_pass(keys, runs)
        yield from self._keep(runs, position)

    def _let_pass(self, keys: KeyArray, runs: Sequence[KeyRun]) -> Jobs:
        """Add stored ids to the filter, or rebuild the filter if it would be too full."""
        filter_ = self._filter
        if filter_.count + len(keys) <= filter_.capacity * FILTER_FILLED_MAX:
            for first in range(0, len(keys), SLICE_ENTRIES):
                yield partial(filter_.add, keys[first : first + SLICE_ENTRIES])
        else:
            yield from self._make_filter(runs)

    def _make_filter(self, runs: Sequence[KeyRun]) -> Jobs:
        filter_ = IdFilter(sum(run.count for run in runs))
        for run in runs:
            for part, _ in run.slices():
                yield partial(filter_.add, part)
        self._filter = filter_

    # ------------------------------------------------------------------ merging and forgetting

    def merge_jobs(self) -> Jobs:
        """Merge runs of similar sizes until few are left."""
        # A forgotten id hides an older entry, which only a merge with the oldest run cannot have.
        return self._merge(
            lambda older: partial(newest_of_each, keep_forgotten=older > 0), self._shrink_filter
        )

    def _shrink_filter(self, runs: Sequence[KeyRun]) -> Jobs:
        if sum(run.count for run in runs) * FILTER_SPARE_MAX <= self._filter.count:
            yield from self._make_filter(runs)

    def forget_jobs(self, owned: Sequence[OwnedIds]) -> Jobs:
        """Remove stored ids, durably, except ids that a newer message has taken."""
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
        for first in range(0, len(keys), SLICE_ENTRIES):
            part = slice(first, first + SLICE_ENTRIES)
            yield partial(look, keys[part], origins[part])

        def join() -> None:
            # A message that moved within its hour has several rows with the same origin.
            found = np.concatenate(gone)
            forgotten.append(found[lasts(found)])

        yield join
        if len(keys := forgotten[0]):
            yield from self._push(keys, np.zeros(len(keys), np.int64), self.position)

    def clear(self) -> None:
        """Empty the index before a rebuild."""
        self._clear()
        self._recent, self._flushing, self._filter = RecentIds(), [], IdFilter(0)


# ---------------------------------------------------------------- forgetting the ids of an hour

READ_ROWS: Final = 16_384
"""Rows of one job: numpy keeps the interpreter's lock for a part of the work on them."""
SORTED_MAX: Final = 1 << 19
"""Ids that are sorted together: 10 MiB."""


def owned_ids(rows: RowArray, hour: int | Int64Array) -> OwnedIds:
    """The client-chosen ids of the rows whose origin is in `hour`.

    `hour` is one for all rows, or one for each. A row with an origin in another hour is a moved
    message, which may be living in a third hour.
    """
    mask = (rows["id_hash"] != 0) & (rows["origin"].astype(np.int64) >> HOUR_SHIFT == hour)
    out = np.empty(int(np.count_nonzero(mask)), OWNED_ID)
    for name in ("topic", "id_hash", "origin"):
        out[name] = rows[name][mask]
    return out


def forget_hour(ids: IdIndex, folder: DelayHour) -> Work:
    """Remove the ids of an hour's rows, except ids that a newer message has taken."""
    found: list[OwnedIds] = []
    for first in range(1, folder.row_count + 1, READ_ROWS):
        yield partial(_gather, folder, first, found)
        if sum(map(len, found)) >= SORTED_MAX:
            yield from ids.forget_jobs(found)
            found.clear()
    yield from ids.forget_jobs(found)


def _gather(folder: DelayHour, first: int, found: list[OwnedIds]) -> None:
    last = min(first + READ_ROWS - 1, folder.row_count)
    owned = owned_ids(folder.read_range(first, last), folder.hour)
    if len(owned):
        found.append(owned)
