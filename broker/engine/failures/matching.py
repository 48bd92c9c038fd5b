"""Which messages failed last for a given reason, so that jobs can change those alone."""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.failures.failure_table import HOW, FailurePart, FailureTable, Wanted
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.storage.columns.questions import Mask
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.layout import Int64Array


def failed_so(table: FailureTable, topic: int, wanted: MessageFilter, found: FoundMessages) -> Mask:
    """Which messages have a failure that is kept, the last of which is as the filter says."""
    out = np.zeros(len(found), np.bool_)
    if len(found) == 0:
        return out
    messages = Wanted(topic, found.group.number, found.origins)
    for part in table.parts:
        at, slots = messages.among(part)
        # A later failure of a message replaces an earlier one: parts and rows are oldest first.
        out[slots] = _is_so(part, at, wanted)
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
