"""The check of `times` for a whole column, in one pass. Clients need no NumPy, so it is apart."""

from __future__ import annotations

import numpy as np

from delaylog.contract.times import UNIX_MS_MIN, UNIX_US_MIN, time_fault
from delaylog.storage.messages.batch import Column, column_max, column_min


def wrong_time(times: Column, first_ms: int = UNIX_MS_MIN) -> tuple[int, str] | None:
    """(row, what is wrong with it) of the first number that is no Unix time in ms; None: none."""
    if column_min(times) >= first_ms and column_max(times) < UNIX_US_MIN:
        return None
    values = np.atleast_1d(times)
    rows = np.flatnonzero((values != 0) & ((values < first_ms) | (values >= UNIX_US_MIN)))
    if not len(rows):
        return None
    row = int(rows[0])
    fault = time_fault(int(values[row]), first_ms)
    assert fault is not None, "the mask and the check of one number agree"
    return row, fault
