"""Converts rows, states and records to Arrow batches: the columns of the table, how to build each.

Columns are built from numpy arrays; repeated texts come from dictionaries. Nothing loops over rows.
The texts of a record (id, key, tags, headers, value) are contiguous, and records mostly are too. So
one block of bytes is read and split at every boundary into an Arrow array without copies, from
which the columns are taken. A row that shares its record with an older row (a retry within the
hour) may be far away; such rows are read in clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delaylog.contract.own_backoff import split_own_backoff
from delaylog.storage.layout import (
    HOUR_MS,
    NEVER_MS,
    TEXT_SIZES,
    Cause,
    Int64Array,
    RowArray,
    head_sizes,
)
from pyspark_delaylog.columns import HEADERS, TIME
from pyspark_delaylog.errors import OptionError
from pyspark_delaylog.segments.folder import Folder
from pyspark_delaylog.segments.options import STATES, SegmentOptions
from pyspark_delaylog.segments.states import CODES, GroupRows, refs_of, times_of

# ----------------------------------------------------------------------------- texts of records

_GAP_BYTES: Final = 65_536
"""Gaps up to this size between two records are read along with them."""


class Records:
    """The records of some rows of one file."""

    def __init__(self, read: Callable[[int, int], bytes], rows: RowArray) -> None:
        """`read` returns a range of the records, by its start and size."""
        self._n = len(rows)
        offsets = rows["offset"].astype(np.int64)
        sizes = rows["size"].astype(np.int64)
        blocks: list[bytes] = []
        bounds: Int64Array = np.empty((self._n, len(TEXT_SIZES) + 2), np.int64)
        bounds[:, 0] = 0
        for place, name in enumerate(TEXT_SIZES):
            bounds[:, place + 1] = bounds[:, place] + rows[name]
        bounds[:, -1] = sizes
        bounds += _read(read, offsets, sizes, blocks)[:, None]
        self._block = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        cuts, places = np.unique(bounds.reshape(-1), return_inverse=True)
        self._sizes = np.diff(bounds, axis=1)
        self._places = np.asarray(places).reshape(bounds.shape)
        self._pieces = _binary(np.append(cuts, cuts[-1:]), self._block)

    def column(self, part: int) -> Any:
        """Part 0 to 4 of each record as a binary array: id, key, tags, headers, body."""
        # An empty part starts where another part does, so it uses the shared empty piece.
        taken = np.where(self._sizes[:, part] > 0, self._places[:, part], len(self._pieces) - 1)
        return self._pieces.take(pa.array(taken))

    def texts(self, part: int, *, missing: bool) -> Any:
        """The same as text. Empty values become null if `missing`."""
        found = self.column(part)
        if missing:
            found = pc.if_else(pa.array(self._sizes[:, part] > 0), found, None)
        return _as_text(found)

    def tags(self) -> Any:
        """Lists of texts."""
        there = self._sizes[:, 2] > 0
        if not there.any():
            return _empty_lists(self._n, pa.list_(pa.string()))
        lists = pc.split_pattern(_as_text(self.column(2).filter(pa.array(there))), "\n")
        counts = np.zeros(self._n, np.int32)
        counts[there] = pc.list_value_length(lists).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), lists.flatten())

    def headers(self) -> Any:
        """Lists of (key, value), as in Kafka. Few messages have headers, mostly equal ones."""
        there = self._sizes[:, 3] > 0
        if not there.any():
            return _empty_lists(self._n, HEADERS)
        out: list[list[dict[str, Any]]] = [[] for _ in range(self._n)]
        for at, raw in zip(np.flatnonzero(there).tolist(), self._packed(there), strict=True):
            out[at] = [{"key": key, "value": value} for key, value in _unpack(raw)]
        return pa.array(out, HEADERS)

    def _packed(self, there: npt.NDArray[np.bool_]) -> list[bytes]:
        found: list[bytes] = self.column(3).filter(pa.array(there)).to_pylist()
        return found


def _read(
    read: Callable[[int, int], bytes], offsets: Int64Array, sizes: Int64Array, blocks: list[bytes]
) -> Int64Array:
    """Read records into `blocks`. Returns the start of each record."""
    order = np.argsort(offsets, kind="stable")
    starts = offsets[order]
    reach = np.maximum.accumulate(starts + sizes[order])
    cuts = np.flatnonzero(starts[1:] > reach[:-1] + _GAP_BYTES) + 1
    shift = np.empty(len(order), np.int64)
    held = 0
    for part in np.split(np.arange(len(order)), cuts):
        if len(part) == 0:
            continue
        first, end = int(starts[part[0]]), int(reach[part[-1]])
        blocks.append(read(first, end - first))
        shift[part] = held - first
        held += end - first
    moved = np.empty(len(order), np.int64)
    moved[order] = starts + shift
    return moved


def _binary(cuts: Int64Array, block: bytes) -> Any:
    """The pieces of a block between cuts, as a binary array."""
    # Neither a row nor a part (PART_BYTES and one extent) exceeds 2 GiB, so int32 is enough.
    offsets = pa.py_buffer(cuts.astype(np.int32).tobytes())
    return pa.Array.from_buffers(pa.binary(), len(cuts) - 1, [None, offsets, pa.py_buffer(block)])


def _as_text(column: Any) -> Any:
    """Binary as text; invalid UTF-8 becomes replacement characters."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if raw is None else raw.decode("utf-8", "replace") for raw in column.to_pylist()
        ]
        return pa.array(texts, pa.string())


def _empty_lists(n: int, kind: Any) -> Any:
    return pa.array([[]], kind).take(pa.array(np.zeros(n, np.int64)))


@lru_cache(4_096)
def _unpack(raw: bytes) -> tuple[tuple[str, bytes], ...]:
    _, packed = split_own_backoff(raw)
    if not packed:
        return ()
    found = msgpack.unpackb(packed, raw=False, strict_map_key=False, unicode_errors="replace")
    return tuple((str(key), _value(value)) for key, value in found.items())


def _value(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else str(value)).encode()


# ------------------------------------------------------------------------- columns of the table

INDEX_COLUMNS: Final = (
    ("hour", TIME),
    ("namespace", pa.string()),
    ("topic", pa.string()),
    ("group", pa.string()),
    ("id", pa.string()),
    ("ref", pa.int64()),
    ("state", pa.string()),
    ("cause", pa.string()),
    ("attempts", pa.int32()),
    ("deliver_at", TIME),
    ("sent_at", TIME),
    ("expires_at", TIME),
    ("lease_until", TIME),
    ("ended_at", TIME),
    ("lateness_ms", pa.int64()),
    ("priority", pa.int32()),
    ("body_size", pa.int64()),
)
TEXT_COLUMNS: Final = (
    ("key", pa.string()),
    ("tags", pa.list_(pa.string())),
    ("headers", HEADERS),
)
BODY_COLUMNS: Final = (("value", pa.binary()),)
_STATE_NAMES: Final = pa.array(STATES)
_CAUSE_NAMES: Final = pa.array([None if c is Cause.NONE else c.name.lower() for c in Cause])
_HEX: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
_ID_SIZE: Final = 17


def schema_of(options: SegmentOptions) -> Any:
    """The Arrow schema of the selected columns. Raises OptionError."""
    known = [*INDEX_COLUMNS]
    known += TEXT_COLUMNS if options.text else ()
    known += BODY_COLUMNS if options.body else ()
    columns = options.columns
    if columns is None:
        return pa.schema(known)
    types = dict(known)
    for name in columns:
        if name not in types:
            hint = "; includeText or includeBody adds some" if not options.body else ""
            raise OptionError(f"columns: there is no {name!r}, only {', '.join(types)}{hint}")
    return pa.schema([(name, types[name]) for name in columns])


class Columns:
    """Builds batches of the rows of one folder."""

    def __init__(self, folder: Folder, schema: Any) -> None:
        self.schema = schema
        self._topics = pa.array([topic.name for topic in folder.topics], pa.string())
        self._spaces = pa.array([topic.namespace for topic in folder.topics], pa.string())

    def batch(
        self, hours: Int64Array, rows: RowArray, found: GroupRows, records: Records | None
    ) -> pa.RecordBatch:
        """Build a batch of the rows in `found`."""
        table = found.table
        due = rows["deliver_at"].astype(np.int64)
        expires = rows["expires_at"].astype(np.int64)
        time, leased, ended = times_of(found)
        topic = table.topic_code[found.topics]
        names = pa.array(table.names, pa.string())
        made: dict[str, Callable[[], Any]] = {
            "hour": lambda: _times(hours * HOUR_MS),
            "namespace": lambda: _named(topic, self._spaces),
            "topic": lambda: _named(topic, self._topics),
            "group": lambda: _named(table.group_code[found.topics], names),
            "id": lambda: _ids(rows, records),
            "ref": lambda: pa.array(refs_of(hours, rows)),
            "state": lambda: _named(found.state, _STATE_NAMES),
            "cause": lambda: _named(found.entries["cause"], _CAUSE_NAMES),
            "attempts": lambda: pa.array(found.entries["attempts"].astype(np.int32)),
            "deliver_at": lambda: _times(due),
            "sent_at": lambda: _times(rows["sent_at"].astype(np.int64)),
            "expires_at": lambda: _times(expires, expires != NEVER_MS),
            "lease_until": lambda: _times(time, leased),
            "ended_at": lambda: _times(time, ended),
            "lateness_ms": lambda: pa.array(time - due, mask=found.state != CODES["acked"]),
            "priority": lambda: pa.array(np.ascontiguousarray(rows["priority"])),
            "body_size": lambda: pa.array(_body_sizes(rows)),
        }
        if records is not None:
            made["key"] = lambda: records.texts(1, missing=True)
            made["tags"] = records.tags
            made["headers"] = records.headers
            made["value"] = lambda: records.column(4)
        columns = [made[name]() for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def damaged(self, hours: Int64Array) -> pa.RecordBatch:
        """Build a batch of damaged rows, of which only the hour is known."""
        n, columns = len(hours), []
        for field in self.schema:
            if field.name == "hour":
                columns.append(_times(hours * HOUR_MS))
            elif field.name == "state":
                columns.append(_named(np.full(n, CODES["damaged"]), _STATE_NAMES))
            else:
                columns.append(pa.nulls(n, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _times(ms: Int64Array, there: npt.NDArray[np.bool_] | None = None) -> Any:
    """Milliseconds as timestamps; null where `there` is false."""
    if there is None:
        return pa.array(ms * 1000).view(TIME)
    return pa.array(np.where(there, ms, 0) * 1000, mask=~there).view(TIME)


def _named(codes: npt.NDArray[Any], names: Any) -> Any:
    """Map codes to names."""
    return names.take(pa.array(codes.astype(np.int32)))


def _body_sizes(rows: RowArray) -> Int64Array:
    return rows["size"] - head_sizes(rows)


def _ids(rows: RowArray, records: Records | None) -> Any:
    """The ids of messages; those that senders chose are stored in the records only."""
    n = len(rows)
    # ref_to_id of layout.py, on a column: a tilde and 16 hex digits.
    origins = rows["origin"].astype(">i8").view(np.uint8).reshape(n, 8)
    digits = np.empty((n, _ID_SIZE), np.uint8)
    digits[:, 0] = ord("~")
    digits[:, 1:] = _HEX[origins].view(np.uint8)
    offsets = np.arange(0, (n + 1) * _ID_SIZE, _ID_SIZE, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits.reshape(-1))]
    made = pa.Array.from_buffers(pa.string(), n, buffers)
    chosen = rows["id_size"] > 0
    if not chosen.any():
        return made
    theirs = records.texts(0, missing=True) if records is not None else pa.nulls(n, pa.string())
    return pc.if_else(pa.array(chosen), theirs, made)
