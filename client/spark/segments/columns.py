"""Converts rows and states to Arrow batches: the columns of the table and how to build each.

Columns are built from numpy arrays; repeated texts come from dictionaries. Nothing loops over rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delaylog.storage.layout import HOUR_MS, NEVER_MS, Cause, Int64Array, RowArray, head_sizes
from pyspark_delaylog.columns import HEADERS, TIME
from pyspark_delaylog.errors import OptionError
from pyspark_delaylog.segments.folder import Folder
from pyspark_delaylog.segments.options import SegmentOptions
from pyspark_delaylog.segments.states import CODES, GroupRows, refs_of, times_of
from pyspark_delaylog.segments.texts import Records
from pyspark_delaylog.segments.wanted import STATES

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
