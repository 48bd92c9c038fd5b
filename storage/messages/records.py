"""Records and their parts: the id, key, tags, headers and body of a message, one after another.

A record has no separators. Its row holds the sizes of the four texts (id, key, tags, headers), and
the body is the rest of the record. The headers are msgpack. If a message has its own backoff
(contract/own_backoff.py), the backoff precedes the headers, and `headers_size` includes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from delaylog.contract.own_backoff import OWN_BACKOFF_SIZE, split_own_backoff
from delaylog.storage.columns import gather, some
from delaylog.storage.layout import TEXT_SIZES, TEXTS, Int64Array, RowArray
from delaylog.storage.messages.batch import Block, have_own_backoff
from delaylog.storage.messages.rows import RowValues, bodies_only


class Record(NamedTuple):
    """The decoded parts of a record; a part that the message does not have is empty."""

    id: str
    key: str
    tags: list[str]
    backoff: dict[str, Any]
    headers: dict[str, str]
    body: bytes


class RawTexts(NamedTuple):
    """The undecoded texts of a record; `headers` begins with the backoff, if there is one."""

    id: bytes
    key: bytes
    tags: bytes
    headers: bytes

    def decode(self, body: bytes) -> Record:
        """Decode them. Raises ValueError or msgpack.UnpackException if the bytes are damaged."""
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
    """The parts of consecutive records in a block, as columns.

    `starts` and `sizes` map the name of a part to its offsets and sizes in bytes. Here `headers`
    does not include the backoff.
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
        """The concatenated values of a part."""
        sizes = self.sizes[part]
        return gather(self.block, self.starts[part], sizes) if some(sizes) else b""


def raw_texts(block: bytes, rows: RowArray, sizes: Int64Array) -> Iterator[RawTexts]:
    """The texts of consecutive records in a block; `sizes` are the sizes of the records."""
    at = 0
    columns = (rows[field].tolist() for field in TEXT_SIZES)
    for *texts, size in zip(*columns, sizes.tolist(), strict=True):
        a = at + texts[0]
        b = a + texts[1]
        c = b + texts[2]
        yield RawTexts(block[at:a], block[a:b], block[b:c], block[c : c + texts[3]])
        at += size


def split_records(block: bytes, rows: RowArray) -> Iterator[Record]:
    """Decode consecutive records. Raises what `RawTexts.decode` raises."""
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


def cut_record(record: bytes, row: RowValues) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """The id, key, tags, headers (with the backoff, if there is one) and body of one record."""
    a = row.id_size
    b = a + row.key_size
    c = b + row.tags_size
    d = c + row.headers_size
    return record[:a], record[a:b], record[b:c], record[c:d], record[d:]


def decode_record(record: bytes, row: RowValues) -> Record:
    """Decode one record. Raises what `RawTexts.decode` raises."""
    if not (row.id_size or row.key_size or row.tags_size or row.headers_size):
        return Record("", "", _NO_TAGS, _NO_HEADERS, _NO_HEADERS, record)
    id_, key, tags, headers, body = cut_record(record, row)
    if headers:
        return RawTexts(id_, key, tags, headers).decode(body)
    own = tags.decode().split("\n") if tags else []
    return Record(id_.decode(), key.decode(), own, _NO_HEADERS, _NO_HEADERS, body)


def split_record(record: bytes, row: RowArray) -> Record:
    """Decode one record. Raises what `RawTexts.decode` raises."""
    return next(split_records(record, np.array([row])))
