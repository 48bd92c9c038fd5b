"""Loads the rows of one task: converts and checks them, and sends them in chunks.

A chunk has limited numbers of rows and (approximately) bytes, independent of Spark's batches, and
rows keep their order. Nothing is copied before the body is encoded. Parts are numbered in the order
of sending, and the number advances only once a chunk was accepted. The caller's `send` decides
where a chunk goes, a transaction or a topic.

Rows of many topics are buffered, sorted by topic, and cut where another topic begins. Each run of
rows of one topic in a request is a part of the transaction, so sorting makes few parts of many
rows: about one for each topic and task. Rows of one topic keep their order.

Rejected rows become messages of the dead-letter topic, with the reason in headers. Such a message
can always be stored: it has neither the id nor the key of the row, is due now, and a body that is
too large is truncated.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delaylog.columns import HEADERS, TIME, Columns, by_merge
from pyspark_delaylog.errors import RefusedError, RowError
from pyspark_delaylog.options import Options

# -------------------------------------------------------------- chunks of the size of a request

ROW_BYTES: Final = 32
"""The size of a row without its texts: time, offsets, priority."""


@dataclass(slots=True)
class Chunk:
    """The rows of one request, as slices of record batches."""

    batches: list[Any] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def body(self, compression: str | None) -> bytes:
        """Encode the rows as an Arrow IPC stream."""
        options = pa.ipc.IpcWriteOptions(compression=compression)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.batches[0].schema, options=options) as stream:
            for batch in self.batches:
                stream.write_batch(batch)
        return bytes(sink.getvalue().to_pybytes())

    def row(self, number: int) -> Any:
        """One row, as a record batch."""
        for batch in self.batches:
            if number < batch.num_rows:
                return batch.slice(number, 1)
            number -= batch.num_rows
        raise IndexError(number)

    def without(self, number: int) -> Chunk:
        """The chunk without one row."""
        kept = Chunk(rows=self.rows - 1, size=self.size)
        for batch in self.batches:
            if 0 <= number < batch.num_rows:
                parts = [batch.slice(0, number), batch.slice(number + 1)]
                kept.batches += [part for part in parts if part.num_rows]
            else:
                kept.batches.append(batch)
            number -= batch.num_rows
        return kept


class Chunker:
    """Takes batches of one schema and returns chunks."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._held = Chunk()

    @property
    def size(self) -> int:
        """The number of bytes buffered for the next chunk."""
        return self._held.size

    def add(self, batch: Any) -> Iterator[Chunk]:
        """Add a batch. Yields the chunks that are full."""
        ends = np.cumsum(row_bytes(batch))
        first = 0
        while first < batch.num_rows:
            held = self._held
            start = int(ends[first - 1]) if first else 0
            room = start + self._bytes_max - held.size
            fitting = int(np.searchsorted(ends, room, side="right")) - first
            count = min(fitting, self._rows_max - held.rows)
            if count <= 0 and held.rows:
                yield from self.rest()
                continue
            # A row larger than a chunk is sent alone; the broker decides whether to accept it.
            count = max(count, 1)
            part = batch.slice(first, count)
            held.batches.append(part)
            held.rows += part.num_rows
            first += part.num_rows
            held.size += int(ends[first - 1]) - start
            if held.rows == self._rows_max or held.size >= self._bytes_max:
                yield from self.rest()

    def rest(self) -> Iterator[Chunk]:
        """Yield the buffered rows as a last chunk."""
        if self._held.rows:
            chunk, self._held = self._held, Chunk()
            yield chunk


def row_bytes(batch: Any) -> Any:
    """The approximate size of each row in a request; exact for texts."""
    total = np.full(batch.num_rows, ROW_BYTES, np.int64)
    for name in batch.schema.names:
        column = batch.column(name)
        kind = column.type
        if pa.types.is_binary(kind) or pa.types.is_string(kind):
            total += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        elif pa.types.is_list(kind) and batch.num_rows:
            # Headers: the mean, since rows usually have similar headers.
            total += column.nbytes // batch.num_rows
    return total


# -------------------------------------------------------------------------------- rejected rows

BODY_BYTES_MAX: Final = 256 * 1024
"""Limit of the value of a rejected row, well below the limit of a broker."""
TEXT_CHARS_MAX: Final = 300
"""Limit of the text of a header."""
HEADER: Final = "delaylog-rejected-"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def letters(rows: Any, reason: str, topic: str | None) -> Any:
    """Build a batch for the wire, row by row, since there are few rejected rows."""
    if "deliver_at" in rows.schema.names:
        times = rows.column("deliver_at").cast(pa.int64())
        rows = rows.drop_columns(["deliver_at"]).append_column("deliver_at", times)
    shapes = rows.to_pylist()
    bodies, headers = [], []
    for shape in shapes:
        body = shape.get("value") or b""
        said = {
            "reason": reason,
            "topic": shape.get("topic", topic),
            "id": shape.get("id"),
            "key": shape.get("key"),
            "deliver-at": _time(shape.get("deliver_at")),
            "bytes": len(body) if len(body) > BODY_BYTES_MAX else None,
        }
        bodies.append(body[:BODY_BYTES_MAX])
        headers.append(
            [
                {"key": HEADER + name, "value": str(value)[:TEXT_CHARS_MAX].encode()}
                for name, value in said.items()
                if value is not None
            ]
        )
    # A time in the past means now, and a repeated task produces the same bytes.
    return pa.RecordBatch.from_arrays(
        [
            pa.array(bodies, pa.binary()),
            pa.array([0] * len(shapes), pa.int64()).cast(TIME),
            pa.array(headers, HEADERS),
        ],
        names=["value", "deliver_at", "headers"],
    )


def _time(us: int | None) -> str | None:
    """A time as text; as a number if its year has more than four digits."""
    try:
        return None if us is None else str(EPOCH + timedelta(microseconds=us))
    except OverflowError:
        return f"{us} microseconds since 1970"


# -------------------------------------------------------------------------- rows of many topics

TOPIC: Final = "topic"


class MixedRows:
    """Buffers record batches that have a column `topic`."""

    def __init__(self) -> None:
        self._batches: list[Any] = []
        self.size = 0
        """The approximate number of buffered bytes."""

    def add(self, batch: Any) -> None:
        """Buffer a batch."""
        self._batches.append(batch)
        self.size += int(row_bytes(batch).sum())

    def take(self) -> list[Any]:
        """The buffered rows as batches sorted by topic; the buffer is then empty."""
        batches, self._batches, self.size = self._batches, [], 0
        if not batches:
            return []
        table = pa.Table.from_batches(batches).combine_chunks()
        # The sort is stable.
        found = table.take(pc.sort_indices(table.column(TOPIC))).combine_chunks().to_batches()
        return list(found)


def runs_of(batch: Any) -> Iterator[tuple[str, int, int]]:
    """(topic, first row, number of rows) of each run of adjacent rows of one topic."""
    starts = run_starts(batch)
    names = batch.column(TOPIC).take(pa.array(starts)).to_pylist()
    ends = [*starts[1:].tolist(), batch.num_rows]
    for name, start, end in zip(names, starts.tolist(), ends, strict=True):
        yield name, start, end - start


def run_starts(batch: Any) -> Any:
    """The first row of each run, as an array; empty without rows."""
    if batch.num_rows == 0:
        return np.zeros(0, np.int64)
    topics = batch.column(TOPIC)
    other = pc.not_equal(topics.slice(1), topics.slice(0, batch.num_rows - 1))
    return np.concatenate([[0], np.flatnonzero(other.to_numpy(zero_copy_only=False)) + 1])


def groups_of_runs(batch: Any, runs_max: int) -> Iterator[Any]:
    """The batch in slices of at most `runs_max` runs."""
    cuts = [*run_starts(batch)[::runs_max].tolist(), batch.num_rows]
    for start, end in itertools.pairwise(cuts):
        yield batch.slice(start, end - start)


# -------------------------------------------------------------------------------------- loading

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
