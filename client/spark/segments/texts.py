"""Converts the records of rows to Arrow columns: id, key, tags, headers and value.

The texts of a record are contiguous, and records mostly are too. So one block of bytes is read and
split at every boundary into an Arrow array without copies, from which the columns are taken. A row
that shares its record with an older row (a retry within the hour) may be far away; such rows are
read in clusters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Protocol

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delaylog.contract.own_backoff import split_own_backoff
from delaylog.storage.layout import TEXT_SIZES, Int64Array, RowArray
from pyspark_delaylog.columns import HEADERS

_GAP_BYTES: Final = 65_536
"""Gaps up to this size between two records are read along with them."""


class RecordFile(Protocol):
    """A source of records."""

    def read_records(self, start: int, size: int) -> bytes:
        """Read a range of the records."""
        ...


class Records:
    """The records of some rows of one file."""

    def __init__(self, files: RecordFile, rows: RowArray) -> None:
        self._n = len(rows)
        offsets = rows["offset"].astype(np.int64)
        sizes = rows["size"].astype(np.int64)
        blocks: list[bytes] = []
        bounds: Int64Array = np.empty((self._n, len(TEXT_SIZES) + 2), np.int64)
        bounds[:, 0] = 0
        for place, name in enumerate(TEXT_SIZES):
            bounds[:, place + 1] = bounds[:, place] + rows[name]
        bounds[:, -1] = sizes
        bounds += _read(files, offsets, sizes, blocks)[:, None]
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
    files: RecordFile, offsets: Int64Array, sizes: Int64Array, blocks: list[bytes]
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
        blocks.append(files.read_records(first, end - first))
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
