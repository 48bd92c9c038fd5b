"""Messages past their ttl that others wait for.

A message past its ttl ends when a receive meets it. One that keeps a key for its retry, or that a
successor waits for, may be met by nobody (no filter in use wants it): so those are looked at now
and then, or what waits for them would wait for ever.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.control.finding import find_origins
from delaylog.broker.engine.deliver.deliverable import Part, end_by_ttl
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.questions import distinct, some
from delaylog.storage.layout import MessageState

HOLDERS_MAX: Final = 4_096
"""Looked at in one call; where there are more, the next call looks at the next ones."""


def end_late_holders(state: EngineState, topic: Topic, group: Group, now_ms: int) -> None:
    """End holders past their ttl. Called every few seconds."""
    # One that keeps a key and has a successor is a holder twice, and ends once.
    origins = distinct(np.array(group.gate.holders(HOLDERS_MAX), np.int64))
    if len(origins) == 0:
        return
    found = find_origins(state, origins, topic, now_ms, group)
    ready = found.known & (found.states == MessageState.READY)
    late = ready & (found.rows["expires_at"] <= now_ms)
    if some(late):
        items = found.take(np.flatnonzero(late))
        end_by_ttl(state, topic, group, Part(items.refs, items.rows, items.entries), now_ms)
        group.ready.left(state.count_released(items.rows))
