"""The index of texts: entries of new rows, candidates for a filter, and background work.

Every answered send is among the candidates, since a send puts its entries when it is applied. The
caller checks each: a candidate may have ended or moved, or have another text with the same hash.

In the background the index is verified or rebuilt after a start, then merged. Until it is whole,
look-ups go through all messages. A rebuild reads the rows hour by hour in slices; rows that are
sent meanwhile put their own entries, and an entry that is put twice counts once. If the disk is
full, a rebuild ends and begins anew later, so that it never has the index of all messages in
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import numpy as np

from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.views.scan import walk
from delaylog.storage.columns import distinct, some, take_rows
from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.layout import HOUR_SHIFT, INDEX_BITS, Int64Array, RowArray
from delaylog.storage.messages.batch import MessageBatch
from delaylog.storage.messages.rows import FewRows, PlacedRows, heads_of
from delaylog.storage.runs.recent_ids import FEW_KEYS_MAX
from delaylog.storage.runs.text_index import (
    RECENT_MAX,
    entries_of_few,
    entries_of_keys,
    entries_of_tags,
    key_of_key,
    key_of_tag,
)
from delaylog.storage.work import Work

# ----------------------------------------------------------------------- entries and candidates


def candidates(state: EngineState, topic: int, texts: MessageFilter) -> Int64Array | None:
    """Origins of the messages of a topic that may have the key and the tag, by hour and row.

    None = go through all messages: the filter names neither, or very many messages have both, or
    the index is still being made.
    """
    keys = []
    if texts.key:
        keys.append(key_of_key(topic, texts.key))
    if texts.tag:
        keys.append(key_of_tag(topic, texts.tag))
    if not keys or not state.texts.whole:
        return None
    first_hour = min(state.hours.counts, default=0)
    found = [state.texts.look_up(key, first_hour) for key in keys]
    few = [origins for origins in found if origins is not None]
    if not few:
        return None
    origins = min(few, key=len)
    known: Int64Array = origins[np.flatnonzero(state.hours.known(origins))]
    return known


_INDEXED: Final = frozenset({"key", "tags"})


def index_sent(
    state: EngineState, topic: int, batch: MessageBatch, placed: PlacedRows, refs: Int64Array
) -> None:
    """Add the rows of a batch, which were given these refs."""
    if len(refs) <= FEW_KEYS_MAX and placed.order is None:
        key_hash = [] if batch.key.empty else placed.rows["key_hash"].tolist()
        few = [] if batch.tags.empty else batch.tag_values
        state.texts.put_few(*entries_of_few(topic, key_hash, few, refs.tolist()))
        return
    if not batch.key.empty:
        state.texts.put(*entries_of_keys(topic, placed.rows["key_hash"], refs))
    if not batch.tags.empty and len(refs):
        tags = batch.tag_values
        if placed.order is not None:
            tags = [tags[row] for row in placed.order.tolist()]
        state.texts.put(*entries_of_tags(topic, tags, refs))


def index_few(state: EngineState, topic: int, few: FewRows) -> None:
    """The same for a few rows."""
    if few.names & _INDEXED:
        state.texts.put_few(*entries_of_few(topic, few.key_hashes, few.tags, few.refs))


def index_stored(state: EngineState, refs: Int64Array, rows: RowArray) -> None:
    """Add the messages of stored rows of one topic."""
    topic, origins = int(rows["topic"][0]), rows["origin"].astype(np.int64)
    if some(rows["key_hash"]):
        state.texts.put(*entries_of_keys(topic, rows["key_hash"], origins))
    at = np.flatnonzero(rows["tags_size"])
    if len(at):
        tagged = take_rows(rows, at)
        names = ("id_size", "key_size", "tags_size")
        data = state.hours.records(refs[at], heads_of(tagged, *names))
        sizes = [tagged[name].astype(np.int64) for name in names]
        ends = np.cumsum(np.stack(sizes, axis=1)).reshape(-1, 3)
        tags = [data[start:end] for start, end in ends[:, 1:].tolist()]
        state.texts.put(*entries_of_tags(topic, tags, origins[at]))


# ------------------------------------------------------------------------------ background work


class TextUpkeep:
    """Keeps the index of texts of one engine whole, small in memory, and in few runs."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._checked = False
        self._rebuild = False

    def restored(self, position: int) -> None:
        """A start has restored a checkpoint at `position`; its log is replayed next."""
        texts = self._state.texts
        self._rebuild = texts.position < position or bool(texts.set_aside)
        # What the log says is put by the replay: without a checkpoint that is everything.
        texts.whole = self._checked = not self._rebuild and not texts.count

    @property
    def due(self) -> bool:
        """Whether `work` has something to do."""
        texts = self._state.texts
        return not texts.whole or texts.recent_count >= RECENT_MAX or texts.crowded

    def work(self, apart: Callable[[Work], Work]) -> Work:
        """Make the index whole, then write recent entries and merge runs. Raises DiskFullError.

        `apart` runs work that writes the index while no checkpoint does.
        """
        texts = self._state.texts
        if not texts.whole:
            if not self._rebuild and not self._checked:
                try:
                    yield from apart(texts.check_jobs())
                except (CorruptionError, DiskFailedError):
                    self._rebuild = True
            if self._rebuild:
                yield from apart(_once(texts.clear))
                # What an earlier rebuild has left. Rows in the tails are read too.
                texts.forget_recent()
                yield from self._read_rows(apart)
            self._rebuild, self._checked = False, True
            texts.whole = True
        if texts.recent_count >= RECENT_MAX:
            yield from apart(self.flush())
        if texts.crowded:
            yield from apart(texts.merge_jobs(self._hours))

    def _hours(self) -> Int64Array:
        return np.array(sorted(self._state.hours.counts), np.int64)

    def flush(self) -> Work:
        """Write recent entries; the index is complete up to the same position as before.

        Raises DiskFullError: the entries stay in memory, where look-ups find them too.
        """
        texts = self._state.texts
        texts.begin_flush()
        yield from texts.flush_jobs(texts.position)

    def checkpoint(self, position: int) -> Work:
        """Write what `begin_flush` set aside at the position of a checkpoint, which needs no index:
        if the disk is full, the entries stay in memory, and a later start rebuilds the index.
        """
        with suppress(DiskFullError):
            yield from self._state.texts.flush_jobs(position)

    def _read_rows(self, apart: Callable[[Work], Work]) -> Work:
        state = self._state
        for hour in sorted(state.hours.counts):
            for rows in walk(state.hours, hour, lambda _, last: [(1, last)] if last else []):
                self._take(hour, rows)
                yield None
                if state.texts.recent_count >= RECENT_MAX:
                    yield from apart(self.flush())

    def _take(self, hour: int, rows: RowArray) -> None:
        refs = rows["global_index"].astype(np.int64) | hour << HOUR_SHIFT
        refs |= rows["epoch_tag"].astype(np.int64) << INDEX_BITS
        # Also rows that messages moved to: compaction takes the texts of an origin that was left.
        mine = (rows["key_hash"] != 0) | (rows["tags_size"] != 0)
        rows, refs = take_rows(rows, mine), refs[mine]
        for topic in distinct(rows["topic"]).tolist():
            if topic in self._state.by_number:
                at = np.flatnonzero(rows["topic"] == topic)
                index_stored(self._state, refs[at], take_rows(rows, at))


def _once(job: Callable[[], None]) -> Work:
    yield job
