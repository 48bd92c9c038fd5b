"""Which messages failed last for a given reason, so that jobs can change those alone."""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.failures.failure_table import HOW, FailurePart, FailureTable
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.storage.columns.questions import Mask
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.layout import Int64Array

_LOW: Final = 0xFFFF


def failed_so(table: FailureTable, topic: int, wanted: MessageFilter, found: FoundMessages) -> Mask:
    """Which messages have a failure that is kept, the last of which is as the filter says."""
    out = np.zeros(len(found), np.bool_)
    if len(found) == 0:
        return out
    order = np.argsort(found.origins)
    origins = found.origins[order]
    # Most rows are of other messages, which the low bits tell in a tenth of the time of a search.
    known = np.zeros(_LOW + 1, np.bool_)
    known[origins & _LOW] = True
    so = np.zeros(len(found), np.bool_)
    for part in table.parts:
        at = np.flatnonzero(part.of(topic, found.group.number))
        at = at[known[part.rows["origin"][at] & _LOW]]
        failed = part.rows["origin"][at]
        slot = np.minimum(np.searchsorted(origins, failed), len(origins) - 1)
        mine = origins[slot] == failed
        # A later failure of a message replaces an earlier one: parts and rows are oldest first.
        so[slot[mine]] = _is_so(part, at[mine], wanted)
    out[order] = so
    return out


def _is_so(part: FailurePart, at: Int64Array, wanted: MessageFilter) -> Mask:
    """Which of these rows fail as the filter says."""
    rows = take_rows(part.rows, at)
    so = np.ones(len(rows), np.bool_)
    if wanted.cause is not None:
        so &= rows["how"] == HOW.index(wanted.cause)
    if wanted.reason is not None:
        so &= rows["reason"] == part.number_of(wanted.reason)
    return so
