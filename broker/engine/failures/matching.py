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
    if len(found) == 0:
        return out
    order = np.argsort(found.origins)
    origins = found.origins[order]
    # Most rows are of other messages, which the low bits tell in a tenth of the time of a search.
    known = np.zeros(_LOW + 1, np.bool_)
    known[origins & _LOW] = True
    for part in table.parts:
        at = np.flatnonzero(part.of(topic, found.group.number))
        at = at[known[part.rows["origin"][at] & _LOW]]
        failed = part.rows["origin"][at]
        slot = np.minimum(np.searchsorted(origins, failed), len(origins) - 1)
        mine = np.flatnonzero(origins[slot] == failed)
        so = np.ones(len(mine), np.bool_)
        if wanted.cause is not None:
            so &= part.rows["how"][at[mine]] == HOW.index(wanted.cause)
        if wanted.reason is not None:
            texts = part.texts
            number = texts.index(wanted.reason) if wanted.reason in texts else -1
            so &= part.rows["reason"][at[mine]] == number
        # Rows are oldest first: of a message with several failures the last one decides.
        out[order[slot[mine]]] = so
    return out
