"""Which messages failed last for a given reason, so that jobs can change those alone."""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.failures.failure_table import HOW, FailureTable
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.storage.columns.questions import Mask

_LOW: Final = 0xFFFF


def failed_so(table: FailureTable, topic: int, wanted: MessageFilter, found: FoundMessages) -> Mask:
    """Which messages have a failure that is kept, the last of which is as the filter says."""
    out = np.zeros(len(found), np.bool_)
    if len(found) == 0 or len(table) == 0:
        return out
    order = np.argsort(found.origins)
    origins = found.origins[order]
    rows = table.rows
    at = np.flatnonzero((rows["topic"] == topic) & (rows["group"] == found.group.number))
    # Most rows are of other messages, which the low bits tell in a tenth of the time of a search.
    known = np.zeros(_LOW + 1, np.bool_)
    known[origins & _LOW] = True
    at = at[known[rows["origin"][at] & _LOW]]
    failed = rows["origin"][at]
    slot = np.minimum(np.searchsorted(origins, failed), len(origins) - 1)
    mine = np.flatnonzero(origins[slot] == failed)
    # A later failure of a message replaces an earlier one: rows are oldest first.
    last = np.full(len(origins), -1, np.int64)
    last[slot[mine]] = at[mine]
    has = np.flatnonzero(last >= 0)
    rows = rows[last[has]]
    so = np.ones(len(has), np.bool_)
    if wanted.cause is not None:
        so &= rows["how"] == HOW.index(wanted.cause)
    if wanted.reason is not None:
        so &= rows["reason"] == table.number_of(wanted.reason)
    out[order[has]] = so
    return out
