"""Text index: ordering keys and tags -> origins of the messages that have them, on disk.

An entry is a hint, as in the id index: whoever finds it checks the row, its texts and where the
message is now. Entries are put when rows are created, whose keys and tags never change, and they
are not removed when messages end; a merge drops those whose hour is gone. Recent entries are in
memory, others in sorted runs (run_store.py). Look-ups are calls of operators, so the runs have no
filter in memory: each is searched in microseconds.

Of a key with very many messages the entries would cost more than they help: a list of all messages
is as fast for it. A run then has one entry instead, with the negative of the last hour it covers.

The key of an entry mixes the topic with the hash that rows have (`hash_u64`), so that an index of
all topics is one sorted list. A tag and an ordering key with the same text have different keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

import numpy as np

from delaylog.storage.columns import every
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.layout import HOUR_SHIFT, Int64Array
from delaylog.storage.messages.rows import hash_u64
from delaylog.storage.runs.recent_ids import keys_of, keys_of_few
from delaylog.storage.runs.run_store import Entries, Jobs, KeyArray, RunStore

# ------------------------------------------------------------------------------------ the index

COMMON: Final = 16_384
"""Entries of one key in a run, at most: with more of them a list goes through all messages."""
RECENT_MAX: Final = 262_144
"""Entries in memory at which they are written: 4 MiB."""
JOINED_MAX: Final = 8_192
"""Entries of a column in memory to which no others are joined."""
UNJOINED_MAX: Final = 1_024
"""Entries of small sends that wait to become a column."""
_NONE: Final = np.zeros(0, np.int64)


class _Batch(NamedTuple):
    """Entries in memory, in a few large columns and smaller ones that double in size."""

    keys: list[KeyArray]
    refs: list[Int64Array]

    def add(self, keys: KeyArray, refs: Int64Array) -> None:
        """Add a column. Smaller ones before it are joined to it, so that a look-up compares few
        columns, and an entry is copied once each time that its column doubles."""
        while self.keys and len(self.keys[-1]) < min(2 * len(keys), JOINED_MAX):
            keys = np.concatenate([self.keys.pop(), keys])
            refs = np.concatenate([self.refs.pop(), refs])
        self.keys.append(keys)
        self.refs.append(refs)

    def columns(self) -> Entries:
        if not self.keys:
            return np.zeros(0, np.uint64), _NONE
        return np.concatenate(self.keys), np.concatenate(self.refs)


class TextIndex(RunStore):
    """(topic, key or tag) -> origins. Look-ups answer None while `whole` is False."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._recent = _Batch([], [])
        self._flushing: list[_Batch] = []
        """Entries set aside for a flush: several after a flush that failed."""
        self._few_keys: list[int] = []
        self._few_refs: list[int] = []
        self.recent_count = 0
        self.whole = False
        """Whether every message has its entries; its owner sets it."""
        super().__init__(fs, path)

    @property
    def count(self) -> int:
        """Entries of its runs, at 16 bytes each."""
        return sum(run.count for run in self._runs)

    # ------------------------------------------------------------------ look-ups and puts

    def put(self, keys: KeyArray, refs: Int64Array) -> None:
        """Add entries."""
        if len(keys):
            self._recent.add(keys, refs)
            self.recent_count += len(keys)

    def put_few(self, keys: list[int], refs: list[int]) -> None:
        """Add a few entries; they become columns together with later ones."""
        self._few_keys += keys
        self._few_refs += refs
        self.recent_count += len(keys)
        if len(self._few_keys) >= UNJOINED_MAX:
            self._join_few()

    def _join_few(self) -> None:
        if self._few_keys:
            keys, refs = self._few_keys, self._few_refs
            self._recent.add(np.array(keys, np.uint64), np.array(refs, np.int64))
            self._few_keys, self._few_refs = [], []

    def look_up(self, key: int, first_hour: int) -> Int64Array | None:
        """Refs that may have a key, ascending; None = too many, or not every message is indexed.

        `first_hour` = the first hour that still exists.
        """
        if not self.whole:
            return None
        self._join_few()
        found: list[Int64Array] = []
        wanted = np.uint64(key)
        for run in self._runs:
            start = int(np.searchsorted(run.keys, wanted))
            stop = int(np.searchsorted(run.keys, wanted, side="right"))
            if start < stop:
                found.append(run.refs[start:stop].copy())
            run.rest()
        for batch in (*self._flushing, self._recent):
            found += [
                refs[keys == wanted] for keys, refs in zip(batch.keys, batch.refs, strict=True)
            ]
        if not found:
            return _NONE
        refs = np.unique(np.concatenate(found))
        common, refs = refs[refs < 0], refs[refs >= 0]
        if len(common) and -int(common.min()) >= first_hour:
            return None
        return refs if len(refs) <= COMMON else None

    # ------------------------------------------------------------------ storing

    def begin_flush(self) -> None:
        """Set the recent entries aside for `flush_jobs`; look-ups still find them."""
        self._join_few()
        if self.recent_count:
            self._flushing.append(self._recent)
            self._recent, self.recent_count = _Batch([], []), 0

    def flush_jobs(self, position: int) -> Jobs:
        """Store the entries set aside, durably. `position` = up to where they are complete then;
        it counts only if the index is whole."""
        box: list[Entries] = []
        batches = list(self._flushing)

        def order() -> None:
            columns = [batch.columns() for batch in batches]
            if columns:
                keys, refs = (np.concatenate(each) for each in zip(*columns, strict=True))
                box.append(collapsed(keys, refs))

        yield order
        runs = list(self._runs)
        if box and len(box[0][0]):
            yield from self._store(*box.pop(), runs)
        yield from self._keep(runs, position if self.whole else 0)
        del self._flushing[: len(batches)]

    def merge_jobs(self, hours_now: Callable[[], Int64Array]) -> Jobs:
        """Merge runs of similar sizes; entries of hours that `hours_now` does not return are
        dropped. It is asked when the runs are chosen: a later run may have later hours.
        """
        return self._merge(lambda _older: partial(_there, hours_now()))

    def check_jobs(self) -> Jobs:
        """Verify the runs. A job raises CorruptionError if one is damaged."""
        for run in self._runs:
            parts, ended = run.check(self._fs), [False]
            while not ended[0]:
                yield partial(_check_part, parts, ended)

    def clear(self) -> None:
        """Empty the runs before a rebuild; entries in memory stay."""
        self.whole = False
        self._clear()

    def forget_recent(self) -> None:
        """Forget the entries in memory, before a rebuild that finds their rows."""
        self._recent, self._flushing = _Batch([], []), []
        self._few_keys, self._few_refs = [], []
        self.recent_count = 0


def _check_part(parts: Iterator[KeyArray], ended: list[bool]) -> None:
    ended[0] = next(parts, None) is None


def collapsed(keys: KeyArray, refs: Int64Array) -> Entries:
    """Entries in order, each once; the entries of each common key are replaced by one."""
    order = np.lexsort((refs, keys))
    keys, refs = keys[order], refs[order]
    fresh = np.ones(len(keys), np.bool_)
    fresh[1:] = (keys[1:] != keys[:-1]) | (refs[1:] != refs[:-1])
    keys, refs = keys[fresh], refs[fresh]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(np.append(starts, len(keys)))
    hidden = np.flatnonzero((counts > COMMON) | (refs[starts] < 0))
    if len(keys) == 0 or len(hidden) == 0:
        return keys, refs
    kept = np.ones(len(keys), np.bool_)
    for first, count in zip(starts[hidden].tolist(), counts[hidden].tolist(), strict=True):
        mine = refs[first : first + count]
        # The hours of entries, and those that earlier entries of this kind cover.
        last = max(int(mine[-1]) >> HOUR_SHIFT if mine[-1] >= 0 else 0, -int(mine[0]))
        kept[first + 1 : first + count] = False
        refs[first] = -last
    return keys[kept], refs[kept]


def _there(hours: Int64Array, keys: KeyArray, refs: Int64Array) -> Entries:
    """The entries of hours that exist."""
    first_hour = int(hours.min()) if len(hours) else 0
    there = np.where(refs < 0, -refs >= first_hour, np.isin(refs >> HOUR_SHIFT, hours))
    return collapsed(keys[there], refs[there])


# --------------------------------------------------------- index keys of ordering keys and tags

_TAG: Final = 0xA076_1D64_78BD_642F
"""Keeps tags apart from ordering keys."""
_HASH_BYTES: Final = 8


def key_of_key(topic: int, text: bytes) -> int:
    """The index key of an ordering key."""
    return _one(topic, hash_u64(text))


def key_of_tag(topic: int, text: bytes) -> int:
    """The index key of a tag."""
    return _one(topic, hash_u64(text) ^ _TAG)


def _one(topic: int, hashed: int) -> int:
    return int(keys_of(topic, np.array([hashed], np.uint64))[0])


@lru_cache(maxsize=8_192)
def _tag_hashes(joined: bytes) -> tuple[int, ...]:
    """Hashes of the tags of a message, which are joined by newlines."""
    return tuple(hash_u64(tag) ^ _TAG for tag in joined.split(b"\n") if tag)


@lru_cache(maxsize=8_192)
def _packed_hashes(joined: bytes) -> bytes:
    """The same as the bytes of a column."""
    return np.array(_tag_hashes(joined), np.uint64).tobytes()


def entries_of_few(
    topic: int, key_hash: Sequence[int], tags: Sequence[bytes], refs: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Entries for a few rows, without the fixed cost of numpy. `tags` may be empty for all."""
    hashes = [hashed for hashed in key_hash if hashed]
    owners = [ref for hashed, ref in zip(key_hash, refs, strict=False) if hashed]
    for joined, ref in zip(tags, refs, strict=False):
        found = _tag_hashes(joined)
        hashes += found
        owners += [ref] * len(found)
    return keys_of_few(topic, hashes), owners


def entries_of_keys(topic: int, key_hash: KeyArray, refs: Int64Array) -> Entries:
    """Entries for rows by their hashes of keys, 0 = no key."""
    if not every(key_hash):
        there = np.flatnonzero(key_hash)
        key_hash, refs = key_hash[there], refs[there]
    return keys_of(topic, key_hash.astype(np.uint64)), refs.astype(np.int64)


def entries_of_tags(topic: int, tags: Sequence[bytes], refs: Int64Array) -> Entries:
    """Entries for rows by their tags, joined by newlines; b"" = no tags."""
    each = list(map(_packed_hashes, tags))
    hashes = np.frombuffer(b"".join(each), np.uint64)
    owners = np.repeat(refs, np.fromiter(map(len, each), np.int64, len(each)) // _HASH_BYTES)
    return keys_of(topic, hashes), owners.astype(np.int64)
