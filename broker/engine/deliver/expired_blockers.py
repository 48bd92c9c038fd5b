"""Blockers past their ttl: messages not under lease that others wait for.

A message past its ttl ends when a receive examines it. No receive may examine a blocker, if no
filter in use matches it, and then its successor, or the messages with its key, would wait for ever.
So blockers are checked periodically.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.deliver.deliverable import Part, end_by_ttl
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.questions import distinct, some
from delaylog.storage.layout import MessageState

BLOCKERS_MAX: Final = 4_096
"""Blockers checked in one call; the next call checks the next ones."""


def end_expired_blockers(state: EngineState, topic: Topic, group: Group, now_ms: int) -> None:
    """End blockers past their ttl. Called every few seconds."""
    # A message that locks a key and has a successor is listed twice.
    origins = distinct(np.array(group.gate.blockers(BLOCKERS_MAX), np.int64))
    if len(origins) == 0:
        return
    found = find_origins(state, origins, topic, now_ms, group)
    ready = found.known & (found.states == MessageState.READY)
    late = ready & (found.rows["expires_at"] <= now_ms)
    if some(late):
        items = found.take(np.flatnonzero(late))
        end_by_ttl(state, topic, group, Part(items.refs, items.rows, items.entries), now_ms)
        group.ready.left(state.count_released(items.rows))
