"""Rows, records and states of up to some sixteen refs, read and stored one by one as integers.

It returns what `HourStore` returns in columns, for near hours only. The fixed costs of columns are
higher than those of a loop over few refs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.layout import (
    HOUR_SHIFT,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    StateValues,
)
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.row_values import ROW, RowValues


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
    near, folders, pile = hours.counts.near, hours.folders, hours.pile
    hour, flushed, states, tail = -1, 0, None, None
    out: list[FewRow] = []
    in_files: list[tuple[int, StateValues]] = []
    for ref in refs:
        index = ref & INDEX_MASK
        if ref >> HOUR_SHIFT != hour:
            hour = ref >> HOUR_SHIFT
            counts = near.get(hour)
            if counts is None:
                return None
            folder = folders.hour(hour)
            flushed, states, tail = folder.row_count, folder.states(group), pile.tail(hour)
        if not 1 <= index <= counts.rows:
            return None
        state = states.get_one(index)
        if state.state:
            return None
        if index <= flushed:
            in_files.append((ref, state))
            continue
        chunk, at = tail.chunk_with(index)
        raw = chunk.raw_row(at)
        row = RowValues._make(ROW.unpack(raw))
        record = chunk.data[row.offset : row.offset + row.size]
        if type(record) is not bytes:
            record = bytes(record)
        out.append(FewRow(ref, raw, row, state, record))
    if not in_files:
        return out
    found = {each.ref: each for each in (*out, *_from_files(hours, in_files))}
    return [found[ref] for ref in refs]


def _from_files(hours: HourStore, wanted: Sequence[tuple[int, StateValues]]) -> Iterable[FewRow]:
    refs = np.array([ref for ref, _ in wanted], np.int64)
    rows = hours.rows(refs)
    records, raw, start = hours.records(refs, rows), rows.tobytes(), 0
    for k, (ref, state) in enumerate(wanted):
        own = raw[k * INDEX_ENTRY_SIZE : (k + 1) * INDEX_ENTRY_SIZE]
        row = RowValues._make(ROW.unpack(own))
        yield FewRow(ref, own, row, state, records[start : start + row.size])
        start += row.size


def all_near(hours: HourStore, refs: Iterable[int]) -> bool:
    """Whether the hours of all these refs are near."""
    near = hours.counts.near
    return all(ref >> HOUR_SHIFT in near for ref in refs)


def put_few(
    hours: HourStore, refs: Sequence[int], entries: Sequence[bytes], group: int
) -> dict[int, int]:
    """Store the sealed entry of each ref in memory; returns the number of refs by hour."""
    folders, hour, states = hours.folders, -1, None
    by_hour: dict[int, int] = {}
    for ref, entry in zip(refs, entries, strict=True):
        if ref >> HOUR_SHIFT != hour:
            hour = ref >> HOUR_SHIFT
            states = folders.hour(hour).states(group)
        by_hour[hour] = by_hour.get(hour, 0) + 1
        states.put_one(ref & INDEX_MASK, entry)
    return by_hour
