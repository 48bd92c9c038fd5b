"""Sorted runs: the immutable files of the far tier.

A run contains rows of many hours in the order of their keys (hour, row number), followed by their
records in the same order. It is written once and never changed; a merge writes new runs and drops
old ones. Checksums cover blocks of 1,024 rows; a block is verified before its first use.

    0     RUN_HEADER (64): counts, log positions, checksums of the keys and of the block table
    64    keys i64, ascending: hour << 32 | row number
    ...   rows (INDEX_ENTRY or STATE_ENTRY); `offset` of an index row counts from the first record
    ...   RUN_BLOCK (16) per block: checksums of its rows and of its records, start of its records
    ...   records, one after another
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from crc32c import crc32c

from delaylog.storage.columns import consecutive, distinct, read_spans
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem, Mapping, replace_file
from delaylog.storage.layout import (
    FILE_VERSION,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_MASK,
    RUN_BLOCK,
    RUN_BLOCK_ROWS,
    RUN_HEADER,
    RUN_HEADER_SIZE,
    RUN_MAGIC,
    Int64Array,
    RowArray,
)

BLOCK_ROWS: Final = RUN_BLOCK_ROWS
_READ_GAP_BYTES: Final = 4_096
_KEY_SIZE: Final = 8


def keys_of(refs: Int64Array) -> Int64Array:
    """(hour, row number) of refs, as numbers that sort by both."""
    out: Int64Array = refs >> HOUR_SHIFT << INDEX_BITS | refs & INDEX_MASK
    return out


def hour_key(hour: int) -> int:
    """The least key of an hour."""
    return hour << INDEX_BITS


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts about a run that a checkpoint stores."""

    number: int
    rows: int
    log_size: int
    first_key: int
    last_key: int
    position_first: int
    position_last: int
    """Positions of the first and the last frame whose rows are here."""


class RunRows(NamedTuple):
    """Rows in the order of their keys; `rows["offset"]` counts within `records`."""

    keys: Int64Array
    rows: RowArray
    records: bytes


def write_run(
    fs: FileSystem, path: str, number: int, content: RunRows, positions: tuple[int, int]
) -> RunFacts:
    """Write a run to a temporary file and rename it. Any thread."""
    keys, rows, records = content
    blocks = _blocks(rows, records)
    raw_keys, raw_rows = keys.astype("<i8").tobytes(), rows.view(np.uint8).data
    table = blocks.tobytes()
    head: tuple[int, ...] = (
        RUN_MAGIC,
        FILE_VERSION,
        rows.dtype.itemsize,
        len(rows),
        len(records),
        *positions,
        crc32c(raw_keys),
        crc32c(table),
    )
    raw = RUN_HEADER.pack(*head, crc32c(RUN_HEADER.pack(*head, 0)))
    parts = [part for part in (raw, raw_keys, raw_rows, table, records) if len(part)]
    replace_file(fs, path, parts)
    return RunFacts(number, len(rows), len(records), int(keys[0]), int(keys[-1]), *positions)


def run_size(facts: RunFacts, dtype: np.dtype[Any]) -> int:
    """Bytes of a run's file."""
    blocks = -(-facts.rows // BLOCK_ROWS)
    rows = facts.rows * (_KEY_SIZE + dtype.itemsize)
    return RUN_HEADER_SIZE + rows + blocks * RUN_BLOCK.itemsize + facts.log_size


def _blocks(rows: RowArray, records: bytes) -> np.ndarray[Any, Any]:
    starts = np.arange(0, len(rows), BLOCK_ROWS)
    blocks = np.zeros(len(starts), RUN_BLOCK)
    with_records = rows.dtype == INDEX_ENTRY
    offsets = rows["offset"].astype(np.int64) if with_records else np.zeros(len(rows), np.int64)
    bounds = [*offsets[starts].tolist(), len(records)]
    view, raw, width = memoryview(records), rows.view(np.uint8).data, rows.dtype.itemsize
    for at, start in enumerate(starts.tolist()):
        stop = min(start + BLOCK_ROWS, len(rows))
        blocks[at] = (
            crc32c(raw[start * width : stop * width]),
            crc32c(view[bounds[at] : bounds[at + 1]]),
            bounds[at],
        )
    return blocks


class SortedRun:
    """An open run. One thread reads it; another thread opens the same file as another run."""

    def __init__(self, fs: FileSystem, path: str, dtype: np.dtype[Any], facts: RunFacts) -> None:
        self.facts = facts
        self._path = path
        self._dtype = dtype
        self._fs = fs
        self._file: File | None = None
        self._map: Mapping | None = None
        file = self.open_file()
        try:
            self._load(file)
        except BaseException:
            file.close()
            raise

    def open_file(self) -> File:
        """The file, opened again after `rest`."""
        if self._file is None:
            self._file = self._fs.open(self._path)
        return self._file

    def rest(self) -> None:
        """Give back the descriptor and the pages of the keys until they are needed again."""
        if self._map is not None:
            self._map.forget(0, self._rows_start)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _load(self, file: File) -> None:
        facts = self.facts
        raw = file.pread(RUN_HEADER_SIZE, 0)
        fields = RUN_HEADER.unpack(raw) if len(raw) == RUN_HEADER_SIZE else (0,) * 10
        magic, version, width, rows, log_size, _, _, keys_crc, table_crc, crc = fields
        whole = magic == RUN_MAGIC and version == FILE_VERSION
        whole = whole and crc == crc32c(RUN_HEADER.pack(*fields[:-1], 0))
        if not whole or (width, rows, log_size) != (
            self._dtype.itemsize,
            facts.rows,
            facts.log_size,
        ):
            raise CorruptionError("a damaged run", path=self._path, position=0)
        self._rows_start = RUN_HEADER_SIZE + rows * _KEY_SIZE
        table_start = self._rows_start + rows * width
        table = file.pread(-(-rows // BLOCK_ROWS) * RUN_BLOCK.itemsize, table_start)
        self._log_start = table_start + len(table)
        self._map = file.map_read(0, self._rows_start)
        keys_raw = memoryview(self._map.buffer)[RUN_HEADER_SIZE : self._rows_start]
        sound = crc32c(keys_raw) == keys_crc and crc32c(table) == table_crc
        keys_raw.release()
        if not sound or file.size() < self._log_start + log_size:
            raise CorruptionError("a damaged run", path=self._path, position=RUN_HEADER_SIZE)
        blocks = np.frombuffer(table, RUN_BLOCK)
        self._blocks = blocks
        self.block_ends: Int64Array = np.append(blocks["log_start"][1:].astype(np.int64), log_size)
        """Where the records of each block end."""
        self._rows_good = np.zeros(len(blocks), np.bool_)
        self._log_good = np.zeros(len(blocks), np.bool_)

    @property
    def _keys(self) -> Int64Array:
        assert self._map is not None, "the run is open"
        return np.frombuffer(self._map.buffer, "<i8", self.facts.rows, RUN_HEADER_SIZE)

    def find(self, keys: Int64Array) -> Int64Array:
        """The places of the rows with these keys; -1 for a key that is not here."""
        mine = self._keys
        at = np.searchsorted(mine, keys)
        at[at == len(mine)] = 0
        at[mine[at] != keys] = -1
        return at

    def span(self, first_key: int, last_key: int) -> tuple[int, int]:
        """(start, stop) of the rows with keys from `first_key` to `last_key`."""
        a, b = np.searchsorted(self._keys, [first_key, last_key + 1]).tolist()
        return a, b

    def keys_between(self, start: int, stop: int) -> Int64Array:
        """Copies of the keys of rows [start, stop)."""
        return self._keys[start:stop].astype(np.int64)

    def rows(self, at: Int64Array) -> RowArray:
        """Copies of the rows at places."""
        self._check(at // BLOCK_ROWS, self._rows_good, self._check_rows)
        return self.unchecked_rows(at)

    def unchecked_rows(self, at: Int64Array) -> RowArray:
        """The same without a check of their blocks. Each state has a seal of its own."""
        width, start = self._dtype.itemsize, self._rows_start
        if consecutive(at):
            raw = self.open_file().pread(len(at) * width, start + int(at[0]) * width)
            return np.frombuffer(raw, self._dtype)
        starts = at * width + start
        raw = read_spans(
            self.open_file().pread, starts, np.full(len(at), width, np.int64), gap=_READ_GAP_BYTES
        )
        return np.frombuffer(raw, self._dtype)

    def records(
        self, at: Int64Array, offsets: Int64Array, sizes: Int64Array, *, checked: bool = True
    ) -> bytes:
        """The records, or their first bytes, of the rows at places `at`."""
        if checked:
            self._check(at // BLOCK_ROWS, self._log_good, self.check_records)
        starts = offsets + self._log_start
        return read_spans(self.open_file().pread, starts, sizes, gap=_READ_GAP_BYTES)

    def raw_records(self, start: int, size: int) -> bytes:
        """A range of the records, which is not checked."""
        return self.open_file().pread(size, self._log_start + start)

    def _check(self, blocks: Int64Array, good: Any, check: Any) -> None:
        if not good[blocks].all():
            for number in distinct(blocks[~good[blocks]]).tolist():
                check(number)
                good[number] = True

    def _check_rows(self, number: int) -> None:
        width = self._dtype.itemsize
        first = number * BLOCK_ROWS
        count = min(BLOCK_ROWS, self.facts.rows - first)
        offset = self._rows_start + first * width
        self._compare(offset, count * width, int(self._blocks["rows_crc"][number]))

    def check_records(self, number: int) -> None:
        """Check the records of one block."""
        start, end = int(self._blocks["log_start"][number]), int(self.block_ends[number])
        crc = int(self._blocks["log_crc"][number])
        self._compare(self._log_start + start, end - start, crc)

    def _compare(self, offset: int, size: int, crc: int) -> None:
        if crc32c(self.open_file().pread(size, offset)) != crc:
            raise CorruptionError("a block with a wrong checksum", path=self._path, position=offset)

    def close(self) -> None:
        """Unmap and close."""
        self.rest()
        if self._map is not None:
            self._map.close()
            self._map = None
