"""Background work on the index of texts: it is verified or rebuilt after a start, then merged.

Until it is whole, look-ups go through all messages. A rebuild reads the rows hour by hour in
slices; rows that are sent meanwhile put their own entries, and an entry that is put twice counts
once. If the disk is full, a rebuild ends and begins anew later, so that it never has the index of
all messages in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from delaylog.broker.engine.lookup.text_entries import index_stored
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.views.scanning import walk
from delaylog.storage.columns.questions import distinct
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.layout import HOUR_SHIFT, INDEX_BITS, Int64Array, RowArray
from delaylog.storage.texts.text_index import RECENT_MAX
from delaylog.storage.work import Work


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
