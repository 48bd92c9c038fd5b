"""Scanning: walk the messages of a topic in the order of their first rows, and pick some.

A message is met once, at its origin row, which stays where it is for as long as the message is
known; where it lives now is asked when it is its turn. So whatever moves meanwhile is neither
missed nor met again, and messages sent after the scan began (by log position) are passed over.
Rows are read in ranges, from files and tails alike.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.job_filter import Filter
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import HOUR_SHIFT, INDEX_BITS, Int64Array

RANGE_ROWS: Final = 16_384


def read_range(
    state: EngineState, hour: int, first: int, count: int, topic: int, position: int, wanted: Filter
) -> tuple[Int64Array, bool, int]:
    """(origins that may match, whether more rows follow, number of the row behind these)."""
    known = state.hours.counts.get(hour)
    last = known.rows if known is not None else 0
    if first > last:
        return np.zeros(0, np.int64), False, first
    stop = min(first + count, last + 1)
    index = np.arange(first, stop, dtype=np.int64)
    rows = state.hours.rows(index | hour << HOUR_SHIFT)
    refs = index | hour << HOUR_SHIFT | rows["epoch_tag"].astype(np.int64) << INDEX_BITS
    mask = (
        (rows["topic"] == topic)
        & (rows["origin"] == refs)
        & (rows["sent_position"] < position)
        & wanted.may_match(rows)
    )
    return refs[mask], stop <= last, stop
