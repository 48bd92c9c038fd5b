"""Records and their parts: the id, key, tags, headers and body of a message, one after another.

A record has no marks between its parts. Its row says how long the four texts are, and the body is
the rest. The headers are msgpack; a message's own backoff stands in front of them, if it has one
(storage/own_backoff.py), and counts as a part of them in `headers_size`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from delaylog.storage.batch import Block
from delaylog.storage.columns import some
from delaylog.storage.gather import gather
from delaylog.storage.layout import TEXT_SIZES, TEXTS, Int64Array, RowArray
from delaylog.storage.own_backoff import OWN_BACKOFF_SIZE, have_own_backoff, split_own_backoff
from delaylog.storage.rows import bodies_only


class Record(NamedTuple):
    """A message as it was sent; a text that it lacks is empty."""

    id: str
    key: str
    tags: list[str]
    backoff: dict[str, Any]
    headers: dict[str, str]
    body: bytes


class RawTexts(NamedTuple):
    """What stands before the body, as bytes; `headers` begins with a backoff, if there is one."""

    id: bytes
    key: bytes
    tags: bytes
    headers: bytes

    def decode(self, body: bytes) -> Record:
        """The record. ValueError, msgpack.UnpackException: these are not the bytes written."""
        backoff, headers = split_own_backoff(self.headers)
        return Record(
            self.id.decode(),
            self.key.decode(),
            self.tags.decode().split("\n") if self.tags else [],
            backoff,
            msgpack.unpackb(headers) if headers else {},
            body,
        )


NO_TEXTS: Final = RawTexts(b"", b"", b"", b"")
_NO_TAGS: Final[list[str]] = []
_NO_HEADERS: Final[dict[str, Any]] = {}


class RecordParts:
    """The parts of records that stand one after another in a block, as columns.

    `starts` and `sizes` are by part, in bytes. The part `headers` is the headers alone.
    """

    def __init__(self, rows: RowArray, block: Block) -> None:
        self.block = block
        size = rows["size"].astype(np.int64)
        at = np.cumsum(size) - size
        ends = at + size
        self.starts: dict[str, Int64Array] = {}
        self.sizes: dict[str, Int64Array] = {}
        for name, field in zip(TEXTS, TEXT_SIZES, strict=True):
            self.starts[name], self.sizes[name] = at, rows[field].astype(np.int64)
            at = at + self.sizes[name]
        self.starts["body"], self.sizes["body"] = at, ends - at
        headers = self.sizes["headers"]
        if some(headers):
            own = have_own_backoff(block, self.starts["headers"], headers) * OWN_BACKOFF_SIZE
            self.starts["headers"] = self.starts["headers"] + own
            self.sizes["headers"] = headers - own

    def cut(self, part: str) -> bytes:
        """The values of a part, one after another."""
        sizes = self.sizes[part]
        return gather(self.block, self.starts[part], sizes) if some(sizes) else b""


def raw_texts(block: bytes, rows: RowArray, sizes: Int64Array) -> Iterator[RawTexts]:
    """What stands before the body of records that begin `sizes` apart in a block."""
    at = 0
    columns = (rows[field].tolist() for field in TEXT_SIZES)
    for *texts, size in zip(*columns, sizes.tolist(), strict=True):
        a = at + texts[0]
        b = a + texts[1]
        c = b + texts[2]
        yield RawTexts(block[at:a], block[a:b], block[b:c], block[c : c + texts[3]])
        at += size


def split_records(block: bytes, rows: RowArray) -> Iterator[Record]:
    """Records that stand one after another, taken apart. Raises as `RawTexts.decode` does."""
    sizes = rows["size"].astype(np.int64)
    end = 0
    if bodies_only(rows):
        for size in sizes.tolist():
            start, end = end, end + size
            yield Record("", "", _NO_TAGS, _NO_HEADERS, _NO_HEADERS, block[start:end])
        return
    for raw, size in zip(raw_texts(block, rows, sizes), sizes.tolist(), strict=True):
        start, end = end, end + size
        yield raw.decode(block[start + sum(map(len, raw)) : end])


def split_record(record: bytes, row: RowArray) -> Record:
    """One record, taken apart."""
    return next(split_records(record, np.array([row])))
