"""The due time of the message that a group hands out next, as far as its queue tells."""

from __future__ import annotations

from typing import Final

from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.questions import some

LOOKED_AT: Final = 32
"""Refs at the front of the queue, among which those whose messages have ended are passed over."""


def oldest_due_ms(state: EngineState, group: Group) -> int | None:
    """The due time of the first ready message; None if there is none, or the order is another.

    Ready queues without an order are in order of release, so it is the oldest one, or nearly.
    """
    if group.made_ready is None or group.order is not None:
        return None
    refs = group.made_ready.first(LOOKED_AT)
    refs = refs[state.hours.known(refs)]
    if not len(refs):
        return None
    rows = state.hours.rows(refs)
    free = group.free(rows, state.hours.get_states(refs, group.number))
    return int(rows["deliver_at"][free].min()) if some(free) else None
