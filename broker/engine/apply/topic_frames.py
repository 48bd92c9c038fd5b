"""What TOPIC, GROUP and FLOOR frames do: topics and groups are created, changed, purged, dropped.

No row is touched: what ends is subtracted from the counts per hour, and the lease table knows what
is under lease.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from delaylog.broker.engine.apply.lease_frames import left_leases
from delaylog.broker.engine.late.timeline import WHOLE
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState, whole
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, DEFAULT_NAME, Group
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.storage.columns import CountColumns, guests_per_hour, per_hour
from delaylog.storage.layout import STATE_ENTRY, Cause, MessageState


@whole
def apply_topic(
    state: EngineState, members: dict[str, Any], position: int, end: int, at_ms: int
) -> None:
    """Create, change or drop a topic. `at_ms` = the leader's time in the frame."""
    number = members["number"]
    state.before_change(number)
    if members.get("dropped"):
        topic = state.by_number.pop(number, None)
        if topic is not None:
            for group in topic.groups.values():
                _leave(state, topic, group, end)
            del state.topics[topic.namespace, topic.name]
            state.names.remove(topic.namespace, topic.name)
            state.series.leave(topic)
            state.timeline.drop_topic(topic.namespace, topic.name)
            state.marks.special.discard(number)
        state.schedules.drop_topic(number)
        state.next_topic = max(state.next_topic, number + 1)
        return
    settings = TopicSettings.from_dict(members["settings"])
    topic = state.by_number.get(number)
    if topic is None:
        topic = state.new_topic(number, members["ns"], members["name"], settings, members["made"])
        state.series.enter(topic)
    if settings.rate_limit != topic.settings.rate_limit:
        for group in topic.groups.values():
            key = topic.namespace, topic.name, group.name
            state.timeline.cut(key, "rate_limit", at_ms)
    topic.settings, topic.made = settings, members["made"]
    _pause(state, topic, at_ms, paused=members.get("paused", False))
    there = DEFAULT_GROUP in topic.groups
    if there and not settings.default_group:
        _leave(state, topic, topic.groups.pop(DEFAULT_GROUP), end)
        topic.default = state.new_group(topic.number, DEFAULT_GROUP, DEFAULT_NAME)
    elif settings.default_group and not there:
        # The group is back: what was sent before does not exist for it.
        used = topic.sent or state.transactions.has_rows_of(number)
        topic.default.born = topic.default.floor = position if used else 0
        topic.groups[DEFAULT_GROUP] = topic.default
        state.series.enter_group(topic, topic.default)
    state.marks.mark_special(topic)
    topic.follow_settings()


def _pause(state: EngineState, topic: Topic, at_ms: int, *, paused: bool) -> None:
    if paused != topic.paused:
        topic.paused = paused
        key = topic.namespace, topic.name, WHOLE
        if paused:
            state.timeline.last(key, "paused", at_ms)
        else:
            state.timeline.end(key, "paused", at_ms)


def apply_target(state: EngineState, members: dict[str, Any], at_ms: int) -> None:
    """Set, change or drop a push target, and note whether messages wait for it."""
    state.targets.apply(members)
    place = members["topic"], members["group"]
    topic, group = state.by_number.get(place[0]), state.group(*place)
    if topic is None or group is None:
        return
    key = topic.namespace, topic.name, group.name
    if "target" in members:
        # Rate and throttle were those of the target before.
        state.timeline.cut(key, "push_target", at_ms)
        if group.bucket is None:
            state.timeline.cut(key, "rate_limit", at_ms)
            state.marks.rate_limited.pop(place, None)
    health = state.targets.healths.get(place)
    if health is not None and health.blocks:
        state.timeline.last(key, "push_target", at_ms)
    else:
        state.timeline.end(key, "push_target", at_ms)


@whole
def apply_group(state: EngineState, members: dict[str, Any], position: int, end: int) -> None:
    """Create, change or drop a named group."""
    state.before_change(members["topic"])
    topic = state.by_number[members["topic"]]
    number = members["number"]
    if members.get("dropped"):
        group = topic.groups.pop(number, None)
        if group is not None:
            _leave(state, topic, group, end)
    else:
        group = topic.groups.get(number)
        if group is None:
            group = topic.groups[number] = state.new_group(topic.number, number, members["name"])
            group.born = group.floor = position
            state.series.enter_group(topic, group)
        group.ephemeral = members["ephemeral"]
        if group.ephemeral:
            state.marks.ephemeral.add((topic.number, number))
    topic.next_group = max(topic.next_group, number + 1)
    state.marks.mark_special(topic)
    topic.follow_settings()


def _leave(state: EngineState, topic: Topic, group: Group, end: int) -> None:
    """Remove a group: all that lives in it ends."""
    state.hours.counts.count_living(group.hours, -1, end)
    state.hours.counts.count_guests(group.guests, -1, end)
    state.leases.drop(topic.number, group.number)
    state.claims.drop(topic.number, group.number)
    state.targets.drop(topic.number, group.number)
    state.failures.drop(topic.number, group.number)
    key = (topic.namespace, topic.name, group.name)
    state.timeline.drop(key, (topic.number, group.number))
    state.schedules.purged(topic.number)
    state.series.leave_group(group)
    group.forget_ready()
    if not state.replaying:
        state.marks.dropped.append(key)


@whole
def apply_purge(state: EngineState, members: dict[str, Any], position: int, end: int) -> None:
    """Purge a group: what waits or is ready has ended; with `force` also what is leased."""
    state.before_change(members["topic"])
    topic = state.by_number[members["topic"]]
    group = topic.groups[members["group"]]
    refs, origins = state.leases.open_rows(topic.number, group.number)
    if members["force"] and len(refs):
        entries = np.zeros(1, STATE_ENTRY)
        entries["state"] = MessageState.CANCELLED
        entries["cause"] = Cause.PURGE
        entries["time"] = members["time"]
        state.hours.put_states(refs, np.repeat(entries, len(refs)), group.number)
        state.leases.drop(topic.number, group.number)
        left_leases(state, topic, group, members["time"])
        state.claims.purge(topic.number, group.number)
        group.counts.add("leased", -group.counts.leased)
        refs = origins = np.zeros(0, np.int64)
    kept, guests = per_hour(refs), guests_per_hour(refs, origins)
    ended = {hour: n - kept.get(hour, 0) for hour, n in group.hours.items()}
    state.hours.counts.count_living(ended, -1, end, members["keep"])
    gone = {hour: n - guests.get(hour, 0) for hour, n in group.guests.items()}
    state.hours.counts.count_guests(gone, -1, end, members["keep"])
    group.floor, group.purged_ms = position, members["time"]
    group.hours, group.guests = CountColumns(kept), CountColumns(guests)
    group.counts.ended(MessageState.CANCELLED, group.counts.living - len(refs))
    topic.keep_until_ms = max(topic.keep_until_ms, members["keep"])
    if members.get("erase"):
        topic.erased = position
        state.marks.erasing.add(topic.number)
        # Reasons may quote the messages.
        state.failures.drop(topic.number)
    state.schedules.purged(topic.number)
    group.forget_ready()
    if group.made_gate is not None:
        group.gate.purge(origins.tolist())
    state.marks.mark_special(topic)
