"""Finds the row to which a MOVE frame moved a row.

The state of a row that moved points to the next one. But the state of the origin points to the
newest row, so the row after the origin is searched for in its second.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

import numpy as np

from delaylog.broker.engine.state import EngineState
from delaylog.storage.hours.far.far_hour import FarHour
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    RowArray,
)
from delaylog.storage.log.payloads import MoveDecision
from delaylog.storage.messages.rows import seconds_of
from delaylog.storage.work import IoJob

SECOND_ROWS_MAX: Final = 65_536
"""Rows of a second that are searched for a moved row, at most."""
_SCAN_ROWS: Final = 4_096


class MovedRow(NamedTuple):
    """A row that moved."""

    origin: int
    ref: int
    due_ms: int
    """The due time of the next row."""


def moved_row(
    state: EngineState, group: int, moved: MovedRow, move: MoveDecision
) -> Generator[IoJob | float | None, None, int]:
    """The ref of the next row; 0 if it is not found any more."""
    origin, ref, due_ms = moved
    if ref != origin:
        refs = np.array([ref], np.int64)
        known = state.hours.known(refs)[0]
        return int(state.hours.get_states(refs, group)[0]["forward"]) if known else 0
    hour = max(due_ms // HOUR_MS, move.hour_floor)
    if hour not in state.hours.counts:
        return 0
    least = ref & ((1 << INDEX_BITS) - 1) if hour == ref >> HOUR_SHIFT else 0
    rows = yield from _rows_of(state, moved, hour)
    rows = rows[(rows["epoch_tag"] == move.tag) & (rows["global_index"] > least)]
    if not len(rows):
        return 0
    return (hour << HOUR_SHIFT) | (move.tag << INDEX_BITS) | int(rows["global_index"].min())


def _rows_of(
    state: EngineState, moved: MovedRow, hour: int
) -> Generator[IoJob | float | None, None, RowArray]:
    """Rows of a message in an hour that are due at the time that it moved to."""
    hours, due_ms = state.hours, moved.due_ms
    life_of_hour, folder = hours.counts.life(hour), hours.view(hour)
    last = hours.flushed(hour)

    def mine(rows: RowArray) -> RowArray:
        out: RowArray = rows[(rows["origin"] == moved.origin) & (rows["deliver_at"] == due_ms)]
        return out

    out = [mine(rows) for rows, _ in hours.pile.parts(hour)]
    if isinstance(folder, FarHour):
        for start in range(1, last + 1, _SCAN_ROWS):
            numbers = np.arange(start, min(start + _SCAN_ROWS, last + 1), dtype=np.int64)
            out.append(mine(folder.read_rows(numbers)))
            yield None
            if hours.counts.life(hour) != life_of_hour:
                break
    elif last:
        second = max(due_ms // 1000 - hour * (HOUR_MS // 1000), 0)
        if int(folder.heads.get().count[second]) <= SECOND_ROWS_MAX:
            for index in folder.walk_second(second, last, slice_rows=1_024):
                if index:
                    rows = folder.read_rows(np.sort(np.array(index, np.int64)))
                    assert int(seconds_of(rows[:1], hour)[0]) == second, "chains keep a second"
                    out.append(mine(rows))
                yield None
                if hours.counts.life(hour) != life_of_hour:
                    break
    return np.concatenate([np.zeros(0, INDEX_ENTRY), *out])
