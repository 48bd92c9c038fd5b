"""Recall: takes back firings that were sent ahead of their instants.

A schedule that lets its messages overlap sends each up to a second ahead, so that the wheel
releases it on time. A pause, a change or a deletion of the schedule in that second cancels such a
message, and so does the end of an outage in which it came due. Afterwards the schedule waits for
the first of those instants again, as if none had been sent ahead, so a resume or a change before
that instant loses nothing, and an instant of an outage obeys the catch-up rule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from delaylog.broker.engine.control.changes import cancel
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.schedules.firing import append_firings
from delaylog.broker.engine.schedules.instants import begin_after
from delaylog.broker.engine.schedules.schedule import AHEAD_MS, Schedule
from delaylog.broker.engine.state import EngineState
from delaylog.broker.rules.schedules.catch_up import newest_instant
from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.storage.layout import MessageState


class Recall(NamedTuple):
    """What a recall does."""

    one: Schedule
    """The schedule as it is afterwards."""
    messages: list[FoundMessages]
    """Its messages that are cancelled, in each group."""


def plan_recall(
    state: EngineState, topic: Topic, one: Schedule, now_ms: int, zones: Zones = PACKAGED
) -> Recall:
    """What `recall_ahead` would do; nothing changes.

    An instant whose message somebody has cancelled has fired, and so have those before it.
    """
    progress, timing = one.progress.copy(), one.spec.timing
    instants: list[int] = []
    # The newest was sent at most AHEAD_MS before it was due, so older ones were due then. After
    # the clock was set back, those between now and then have fired.
    from_ms = max(now_ms, progress.last_ms - AHEAD_MS)
    # Without its zone nobody knows what was sent ahead; a take-over takes longer than a second.
    if one.spec.rules.overlap == "allow" and timing.zone in zones.names:
        at = next_instant(timing, from_ms, zones)
        while at is not None and at <= progress.last_ms:
            instants.append(at)
            at = next_instant(timing, at, zones)
    if not instants:
        return Recall(one, [])
    ids = [one.id_at(at) for at in instants]
    seen = [find_ids(state, topic, ids, group=group) for group in topic.groups.values()]
    wait = [
        any(each.known[n] and each.states[n] == MessageState.WAITING for each in seen)
        for n in range(len(ids))
    ]
    # Up to the last instant whose message does not wait any more.
    kept = max((n + 1 for n, waits in enumerate(wait) if not waits), default=0)
    if kept == len(ids):
        return Recall(one, [])
    progress.n -= len(ids) - kept
    before_ms = instants[kept - 1] if kept else from_ms
    # A firing by hand is behind those that were sent ahead, and stays the newest.
    if progress.fired_ms in instants:
        # What fired before is not stored: it is the instant before, unless that was in a pause,
        # whose message does not exist then.
        progress.fired_ms = newest_instant(timing, before_ms, zones) if progress.n else 0
    begin_after(one, progress, before_ms, zones)
    return Recall(one.at(progress), [found.take(np.arange(kept, len(ids))) for found in seen])


def recall_missed(state: EngineState, down_ms: int, now_ms: int) -> None:
    """Recall what was sent ahead of an outage and came due in it, between the two times.

    `down_ms` is the last time at which a leader is known to have been there. Under `all` such an
    instant fires anyway, so its message stays.
    """
    for number in state.schedules.sent_ahead(down_ms) if down_ms < now_ms else ():
        one = state.schedules.get(number)
        if one is not None and not one.paused and one.spec.rules.catch_up != "all":
            plan = plan_recall(state, state.by_number[one.topic], one, down_ms)
            _carry_out(state, one, plan, now_ms)


def recall_ahead(
    state: EngineState, topic: Topic, one: Schedule, now_ms: int, zones: Zones = PACKAGED
) -> Schedule:
    """Cancel the messages of instants after `now_ms`; returns the schedule as it is now."""
    return _carry_out(state, one, plan_recall(state, topic, one, now_ms, zones), now_ms, zones)


def _carry_out(
    state: EngineState, one: Schedule, plan: Recall, now_ms: int, zones: Zones = PACKAGED
) -> Schedule:
    after, messages = plan
    if after is one:
        return one
    # The schedule before the messages: if a crash comes between the two, an instant whose message
    # still lives is not sent again.
    append_firings(state, [], {one.number: after.progress}, now_ms, by=zones.version)
    state.schedules.wake(one, after.progress)
    for found in messages:
        cancel(state, state.by_number[one.topic], found, now_ms)
    return after
