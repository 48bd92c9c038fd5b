"""Loads the rows of one task: converts and checks them, and sends them in chunks.

Parts are numbered in the order of sending, and the number advances only once a chunk was accepted.
The caller's `send` decides where a chunk goes, a transaction or a topic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark_delaylog.chunks import Chunk, Chunker
from pyspark_delaylog.columns import Columns, by_merge
from pyspark_delaylog.errors import RefusedError, RowError
from pyspark_delaylog.options import Options
from pyspark_delaylog.rejects import letters
from pyspark_delaylog.topics import TOPIC, MixedRows, groups_of_runs, run_starts, runs_of

CHUNKS_HELD_MAX: Final = 8
"""Limit of buffered rows of many topics, in chunks: more rows make fewer parts of each topic."""
TOPICS_A_CHUNK_MAX: Final = 2_000
"""A broker stages some 5,000 parts/s, and its answer must come before the time-out."""
REFUSALS_MAX: Final = 100
"""The most rows of a chunk that may be refused; more mean that all the data is wrong."""
OF_A_ROW: Final = frozenset({400, 413})

log = logging.getLogger("pyspark_delaylog")


class Place(NamedTuple):
    """Rows that one request may hold: with the same columns and one merge mode."""

    topic: str | None
    """None: they have a column `topic`."""
    merge: str | None = None
    are_letters: bool = False


Send = Callable[[str | None, int, bytes], None]
"""(topic or None, number, body): returns once the chunk was accepted, otherwise raises. A body with
a column `topic` takes a number for each run of rows of one topic."""


@dataclass(slots=True)
class Loaded:
    """The totals of a task."""

    rows: int = 0
    size: int = 0
    chunks: int = 0
    rejected: int = 0
    past: int = 0


class Loading:
    """The rows of one task."""

    def __init__(
        self, options: Options, columns: Columns, send: Send, *, combines: bool = False
    ) -> None:
        """`combines`: whether a request may hold rows of many topics."""
        self._options = options
        self._combines = combines
        self._columns = columns
        self._send = send
        self._rows_max = options.batch_rows
        if options.rows_per_second_max is not None:
            # At most one second of rows per chunk, so that a low rate is even.
            self._rows_max = min(self._rows_max, options.rows_per_second_max)
        self._chunkers: dict[Place, Chunker] = {}
        self._mixed: dict[str | None, MixedRows] = {}
        self._loaded = Loaded()
        self._number = 0
        self._began_s = 0.0

    def run(self, batches: Iterable[Any]) -> Loaded:
        """Send all rows."""
        self._began_s = time.monotonic()
        for batch in batches:
            if batch.num_rows == 0:
                continue
            wire = self._columns.wire(batch)
            if self._options.dead_letter:
                wire, rejected = self._columns.sift(wire)
                for each in rejected:
                    self._put_aside(each.rows, each.reason, self._options.topic)
            else:
                self._columns.refuse(wire)
            if wire.num_rows:
                self._loaded.past += self._columns.past(wire)
                for merge, rows in by_merge(wire):
                    if self._options.topic is not None:
                        self._add(Place(self._options.topic, merge), rows)
                    else:
                        self._hold(merge, rows)
        self._release()
        # Rejected rows of a chunk add rows to the dead-letter topic, so repeat.
        while any(chunker.size for chunker in self._chunkers.values()):
            for place in list(self._chunkers):
                self._flush(place)
        return self._loaded

    def _hold(self, merge: str | None, rows: Any) -> None:
        """Buffer rows of many topics."""
        self._mixed.setdefault(merge, MixedRows()).add(rows)
        held = sum(each.size for each in self._mixed.values())
        if held > CHUNKS_HELD_MAX * self._options.batch_bytes:
            self._release()

    def _release(self) -> None:
        """Send the buffered rows of many topics."""
        for merge, mixed in self._mixed.items():
            for batch in mixed.take():
                if self._combines:
                    place = Place(None, merge)
                    for group in groups_of_runs(batch, TOPICS_A_CHUNK_MAX):
                        self._add(place, group)
                        self._flush(place)
                    continue
                rest = batch.drop_columns([TOPIC])
                for topic, first, count in runs_of(batch):
                    place = Place(topic, merge)
                    self._add(place, rest.slice(first, count))
                    self._flush(place)
                    del self._chunkers[place]

    def _add(self, place: Place, rows: Any) -> None:
        chunker = self._chunkers.get(place)
        if chunker is None:
            chunker = Chunker(self._rows_max, self._options.batch_bytes)
            self._chunkers[place] = chunker
        for chunk in chunker.add(rows):
            self._send_chunk(place, chunk)

    def _flush(self, place: Place) -> None:
        for chunk in self._chunkers[place].rest():
            self._send_chunk(place, chunk)

    def _send_chunk(self, place: Place, chunk: Chunk) -> None:
        refusals = 0
        while chunk.rows:
            body = chunk.body(self._options.compression)
            self._pace()
            try:
                self._send(place.topic, self._number, body)
            except RefusedError as error:
                refusals += 1
                row = self._refused_row(place, chunk, error, refusals)
                self._put_aside(chunk.row(row), error.detail, place.topic)
                chunk = chunk.without(row)
                continue
            self._loaded.chunks += 1
            self._number += _numbers(place, chunk)
            self._loaded.rows += chunk.rows
            self._loaded.size += len(body)
            return

    def _refused_row(self, place: Place, chunk: Chunk, error: RefusedError, refusals: int) -> int:
        """The index of the row to reject; raises if rejecting is disabled or impossible."""
        row, field = error.item, error.field
        if row is None and chunk.rows == 1 and error.status == 413:
            # Its body is larger than a request may be.
            row, field = 0, "value"
        if error.status not in OF_A_ROW or row is None or not 0 <= row < chunk.rows:
            raise error
        refused = chunk.row(row)
        topic = place.topic or refused.column(TOPIC)[0].as_py()
        if not self._options.dead_letter:
            raise self._columns.row_error(refused, field, error.detail, topic) from None
        if place.are_letters:
            raise RowError(
                f"the broker refuses a rejected row for topic {topic!r} too: {error.detail}"
            ) from None
        if refusals > REFUSALS_MAX:
            raise RowError(
                f"the broker refuses more than {REFUSALS_MAX} rows of one chunk for topic "
                f"{topic!r}, the last one because: {error.detail}; the data or an option is wrong"
            ) from None
        return row

    def _put_aside(self, rows: Any, reason: str, topic: str | None) -> None:
        target = self._options.dead_letter_topic
        assert target is not None, "the options ensure it"
        self._loaded.rejected += rows.num_rows
        log.warning("%d rows go to topic %s: %s", rows.num_rows, target, reason)
        self._add(Place(target, are_letters=True), letters(rows, reason, topic))

    def _pace(self) -> None:
        """Wait until the rate limit allows the rows sent so far."""
        if self._options.rows_per_second_max is not None:
            due_s = self._began_s + self._loaded.rows / self._options.rows_per_second_max
            time.sleep(max(0.0, due_s - time.monotonic()))


def _numbers(place: Place, chunk: Chunk) -> int:
    """The number of parts that the broker makes of a chunk."""
    if place.topic is not None:
        return 1
    # A run that goes on in the next batch is one part.
    lasts = [batch.column(TOPIC)[-1] for batch in chunk.batches[:-1]]
    firsts = [batch.column(TOPIC)[0] for batch in chunk.batches[1:]]
    joined = sum(bool(last == first) for last, first in zip(lasts, firsts, strict=True))
    return sum(len(run_starts(batch)) for batch in chunk.batches) - joined
