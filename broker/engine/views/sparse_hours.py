"""Far hours with few rows each, which a list reads together: candidates for a page.

Timers that are due within a year lie in thousands of hours, one or two in each. Each hour by itself
costs 0.4 ms, most of it for calls of numpy; together they cost some microseconds a row. The rows
are those of one moment. A message that moves into one of the hours later is treated as one that
moves behind the cursor.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.views.list_filter import RowFilter
from delaylog.storage.columns.questions import distinct
from delaylog.storage.layout import HOUR_SHIFT, NO_TAG, Int64Array

FEW_ROWS: Final = 32
"""Rows of a sparse hour, at most, of all topics."""
STRETCH_ROWS_MIN: Final = 128
STRETCH_ROWS_MAX: Final = 1_024
"""Rows of the hours that are read together, at most: about a millisecond."""


def sparse_stretch(state: EngineState, hours: Int64Array, wanted: int) -> Int64Array:
    """The first of some ascending hours, as far as all of them are sparse.

    `wanted`: the number of messages that a page has room for.
    """
    rows_max = min(max(2 * wanted, STRETCH_ROWS_MIN), STRETCH_ROWS_MAX)
    first = hours[:rows_max]
    rows = state.hours.counts.row_counts(first)
    sparse = state.hours.counts.far_mask(first) & (rows <= FEW_ROWS)
    sparse &= np.cumsum(rows) <= rows_max
    return first if sparse.all() else first[: int(np.argmin(sparse))]


def origins_in(state: EngineState, hours: Int64Array, wanted: RowFilter) -> Int64Array:
    """The messages, ascending, that have a row in some hours, and may match there."""
    rows = state.hours.counts.row_counts(hours)
    ends = np.cumsum(rows)
    index = np.arange(int(rows.sum()), dtype=np.int64) - np.repeat(ends - rows, rows) + 1
    refs = index | np.repeat(hours, rows) << HOUR_SHIFT
    if not wanted.unhandled:
        # States are small, and few match.
        refs = refs[wanted.stored(state.hours.get_states(refs, wanted.group.number))]
    found = state.hours.rows(refs)
    mask = wanted.rows(found) & (found["epoch_tag"] != NO_TAG)
    return distinct(found["origin"][mask].astype(np.int64))
