"""Forgets the failures of messages that were successful in the end, or were removed.

A checkpoint calls it when the table has grown, so it holds living messages and dead letters.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import numpy as np

from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns.questions import Mask, distinct, every
from delaylog.storage.layout import STATE_ENDED_FIRST, Int64Array, MessageState
from delaylog.storage.work import Work

TIDY_MIN: Final = 4_096
"""Number of failures below which nothing is forgotten."""
SLICE_MESSAGES: Final = 1_024
_DEAD: Final = int(MessageState.DEAD)


def tidy(state: EngineState) -> Work:
    """Forget failures of other messages, part by part, if the table has doubled since the last
    time.
    """
    table = state.failures
    if len(table) < max(TIDY_MIN, 2 * table.tidied):
        return
    for part in table.parts:
        rows = part.rows
        kept = np.zeros(len(rows), np.bool_)
        places = rows["topic"].astype(np.int64) << 32 | rows["group"]
        for place in distinct(places).tolist():
            mine = np.flatnonzero(places == place)
            origins, which = np.unique(rows["origin"][mine], return_inverse=True)
            needed = yield from _needed(state, divmod(place, 1 << 32), origins)
            kept[mine] = needed[which]
        if not every(kept):
            table.keep(part, kept)
    table.tidied = len(table)


def _needed(
    state: EngineState, place: tuple[int, int], origins: Int64Array
) -> Generator[None, None, Mask]:
    """Which of a group's messages are living or dead letters."""
    out = np.zeros(len(origins), np.bool_)
    for first in range(0, len(origins), SLICE_MESSAGES):
        topic, group = state.by_number.get(place[0]), state.group(*place)
        if topic is None or group is None:
            break
        part = slice(first, first + SLICE_MESSAGES)
        found = find_origins(state, origins[part], topic, group=group)
        living = found.states < STATE_ENDED_FIRST
        out[part] = found.known & (living | (found.states == _DEAD))
        yield None
    return out
