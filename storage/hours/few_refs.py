"""Rows, records and state entries of few refs, read and stored one by one as integers.

It returns what `HourStore` returns in columns, for near hours only. The fixed costs of columns are
higher than those of a loop over few refs; the callers decide how many are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.hours.hour_tail import HourTail
from delaylog.storage.hours.states.piece import PIECE_ROWS
from delaylog.storage.layout import (
    BLANK_STATE,
    HOUR_SHIFT,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    INDEX_ROW,
    StateValues,
)
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.row_values import RowValues


class FoundRow(NamedTuple):
    """A row with its state entry in a group, and its record."""

    ref: int
    raw: Block
    """The bytes of the row."""
    row: RowValues
    entry: StateValues
    record: bytes


def find_few(hours: HourStore, refs: Sequence[int], group: int) -> list[FoundRow] | None:
    """The rows of these refs; None if one is unknown, of a far hour, or not in the state NONE."""
    out: list[FoundRow] = []
    entries: list[StateValues] = []
    hour = first = end = flushed = last = 0
    tail: HourTail | None = None
    for ref in refs:
        index = ref & INDEX_MASK
        if ref >> HOUR_SHIFT != hour:
            hour, end = ref >> HOUR_SHIFT, 0
            counts = hours.counts.near.get(hour)
            if counts is None:
                return None
            folder, tail = hours.folders.hour(hour), hours.pile.tail(hour)
            flushed, last = folder.reader.row_count, counts.rows
            column = folder.states(group)
        if not 1 <= index <= last:
            return None
        if not first <= index < end:
            which = (index - 1) // PIECE_ROWS
            piece, first = column.piece_to_read(which), which * PIECE_ROWS + 1
            end = first + PIECE_ROWS
        entry = BLANK_STATE if piece is None else piece.get_one(index - first)
        if entry.state:
            return None
        entries.append(entry)
        if index > flushed:
            assert tail is not None, "a known row is in the tail or in a file"
            chunk, at = tail.chunk_with(index)
            raw = chunk.raw_row(at)
            row = RowValues._make(INDEX_ROW.unpack(raw))
            record = chunk.data[row.offset : row.offset + row.size]
            out.append(FoundRow(ref, raw, row, entry, bytes(record)))
    if not out and len({each >> HOUR_SHIFT for each in refs}) == 1:
        # All of them are in the files of one hour.
        found = folder.reader.few([each & INDEX_MASK for each in refs])
        if found is not None:
            every = zip(refs, entries, found, strict=True)
            return [FoundRow(each, raw, row, entry, own) for each, entry, (raw, row, own) in every]
    return out if len(out) == len(refs) else list(_in_columns(hours, refs, entries))


def _in_columns(
    hours: HourStore, refs: Sequence[int], entries: Sequence[StateValues]
) -> Iterator[FoundRow]:
    """The same for rows that are scattered over files, or partly in memory: read in columns."""
    column = np.array(refs, np.int64)
    rows = hours.rows(column)
    records, raw, start = hours.records(column, rows), rows.tobytes(), 0
    for k, (ref, entry) in enumerate(zip(refs, entries, strict=True)):
        own = raw[k * INDEX_ENTRY_SIZE : (k + 1) * INDEX_ENTRY_SIZE]
        row = RowValues._make(INDEX_ROW.unpack(own))
        yield FoundRow(ref, own, row, entry, records[start : start + row.size])
        start += row.size


def put_few(
    hours: HourStore, refs: Sequence[int], entries: Sequence[bytes], group: int
) -> dict[int, int]:
    """Store the sealed state entry of each ref in memory; returns the number of refs by hour."""
    by_hour: dict[int, int] = {}
    hour = first = end = 0
    for ref, entry in zip(refs, entries, strict=True):
        index = ref & INDEX_MASK
        if ref >> HOUR_SHIFT != hour:
            hour, end = ref >> HOUR_SHIFT, 0
            column = hours.folders.hour(hour).states(group)
        if not first <= index < end:
            which = (index - 1) // PIECE_ROWS
            piece, first = column.piece_to_change(which), which * PIECE_ROWS + 1
            end = first + PIECE_ROWS
        piece.put_one(index - first, entry)
        by_hour[hour] = by_hour.get(hour, 0) + 1
    return by_hour
