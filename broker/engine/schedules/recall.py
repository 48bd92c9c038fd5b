"""Recall: takes back firings that were sent ahead of their instants.

A schedule that lets its messages overlap sends each up to a second ahead, so that the wheel
releases it on time. Who pauses, changes or deletes the schedule in that second expects no message
any more. Afterwards the schedule waits for the first of those instants again, as if none had been
sent ahead, so a resume or a change before that instant loses nothing.
"""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.control.changes import cancel
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.schedules.firing import append_firings
from delaylog.broker.engine.schedules.instants import begin_after
from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.broker.engine.state import EngineState
from delaylog.broker.schedules.instants import next_instant
from delaylog.broker.schedules.zones import PACKAGED, Zones
from delaylog.storage.layout import MessageState


def recall_ahead(
    state: EngineState, topic: Topic, one: Schedule, now_ms: int, zones: Zones = PACKAGED
) -> Schedule:
    """Cancel the messages of instants after `now_ms`; returns the schedule as it is now.

    An instant whose message somebody has cancelled has fired, and so have those before it.
    """
    progress = one.progress.copy()
    instants: list[int] = []
    if one.spec.rules.overlap == "allow":
        at = next_instant(one.spec.timing, now_ms, zones)
        while at is not None and at <= progress.last_ms:
            instants.append(at)
            at = next_instant(one.spec.timing, at, zones)
    if not instants:
        return one
    ids = [one.id_at(at) for at in instants]
    seen = [find_ids(state, topic, ids, group=group) for group in topic.groups.values()]
    wait = [
        any(each.known[n] and each.states[n] == MessageState.WAITING for each in seen)
        for n in range(len(ids))
    ]
    # Up to the last instant whose message does not wait any more.
    kept = max((n + 1 for n, waits in enumerate(wait) if not waits), default=0)
    if kept == len(ids):
        return one
    # The schedule before the messages: if a crash comes between the two, an instant whose message
    # still lives is not sent again.
    progress.n -= len(ids) - kept
    progress.fired_ms = instants[kept - 1] if kept else 0
    begin_after(one, progress, instants[kept - 1] if kept else now_ms, zones)
    append_firings(state, [], {one.number: progress}, now_ms, by=zones.version)
    state.schedules.wake(one, progress)
    for found in seen:
        cancel(state, topic, found.take(np.arange(kept, len(ids))), now_ms)
    return one.at(progress)
