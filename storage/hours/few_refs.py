"""Rows, records and states of up to some sixteen refs, read and stored one by one as integers.

It returns what `HourStore` returns in columns, for near hours only. The fixed costs of columns are
higher than those of a loop over few refs.
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


class FewRow(NamedTuple):
    """A row with its state in a group, and its record."""

    ref: int
    raw: Block
    """The bytes of the row."""
    row: RowValues
    state: StateValues
    record: bytes


def find_few(hours: HourStore, refs: Sequence[int], group: int) -> list[FewRow] | None:
    """The rows of these refs; None if one is unknown, of a far hour, or has a state."""
    out: list[FewRow] = []
    states: list[StateValues] = []
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
            flushed, last, column = folder.row_count, counts.rows, folder.states(group)
        if not 1 <= index <= last:
            return None
        if not first <= index < end:
            which = (index - 1) // PIECE_ROWS
            piece, first = column.piece_to_read(which), which * PIECE_ROWS + 1
            end = first + PIECE_ROWS
        state = BLANK_STATE if piece is None else piece.get_one(index - first)
        if state.state:
            return None
        states.append(state)
        if index > flushed:
            assert tail is not None, "a known row is in the tail or in a file"
            chunk, at = tail.chunk_with(index)
            raw = chunk.raw_row(at)
            row = RowValues._make(INDEX_ROW.unpack(raw))
            record = chunk.data[row.offset : row.offset + row.size]
            out.append(FewRow(ref, raw, row, state, bytes(record)))
    if not out and len({each >> HOUR_SHIFT for each in refs}) == 1:
        found = folder.reader.few([each & INDEX_MASK for each in refs])
        if found is not None:
            every = zip(refs, states, found, strict=True)
            return [FewRow(each, raw, row, state, own) for each, state, (raw, row, own) in every]
    return out if len(out) == len(refs) else list(_in_columns(hours, refs, states))


def _in_columns(
    hours: HourStore, refs: Sequence[int], states: Sequence[StateValues]
) -> Iterator[FewRow]:
    """The same for rows of which some are in files, which are read in columns."""
    column = np.array(refs, np.int64)
    rows = hours.rows(column)
    records, raw, start = hours.records(column, rows), rows.tobytes(), 0
    for k, (ref, state) in enumerate(zip(refs, states, strict=True)):
        own = raw[k * INDEX_ENTRY_SIZE : (k + 1) * INDEX_ENTRY_SIZE]
        row = RowValues._make(INDEX_ROW.unpack(own))
        yield FewRow(ref, own, row, state, records[start : start + row.size])
        start += row.size


def put_few(
    hours: HourStore, refs: Sequence[int], entries: Sequence[bytes], group: int
) -> dict[int, int]:
    """Store the sealed entry of each ref in memory; returns the number of refs by hour."""
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
