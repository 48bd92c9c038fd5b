"""Topics and groups: made, changed, purged and dropped, by one frame each.

None of it touches a row. What has to go is known by counts per hour and by the lease table, so a
purge of fifty million messages costs as much as its hours and what is under lease.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from delaylog.broker.engine.deliver.waking import follow_settings
from delaylog.broker.engine.errors import ConflictError, QuotaRefusal
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, DEFAULT_NAME, Group
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.storage.columns.count_columns import CountColumns
from delaylog.storage.columns.questions import guests_per_hour, per_hour
from delaylog.storage.layout import (
    STATE_ENTRY,
    Cause,
    FrameKind,
    MessageState,
)

SUSPECT_MS = 60_000
"""Rows that were on their way to the wheel during a purge come out of it this much later."""

# --------------------------------------------------------------------------- deciding


def get_or_make_topic(state: EngineState, namespace: str, name: str, now_ms: int) -> Topic:
    """The topic; a first send makes it, with the server's default settings."""
    topic = state.topics.get((namespace, name))
    return topic or put_topic(state, namespace, name, TopicSettings(), now_ms, made=False)


def _check_room(state: EngineState) -> None:
    """Raises QuotaRefusal: there are as many topics as may be."""
    most = state.limits.topics_max
    if len(state.by_number) >= most:
        raise QuotaRefusal(
            f"there are {len(state.by_number)} topics, and topics_max is {most}: drop topics that "
            "nobody needs, or raise topics_max in [limits]",
            quota="topics",
        )


def put_topic(
    state: EngineState,
    namespace: str,
    name: str,
    settings: TopicSettings,
    now_ms: int,
    *,
    made: bool,
) -> Topic:
    """Make a topic or change its settings, by one frame."""
    known = state.topics.get((namespace, name))
    if known is None:
        _check_room(state)
    if known is not None and known.settings.slots != settings.slots:
        raise ConflictError(
            f"slots are fixed with the topic: {known.settings.slots}; make another topic",
            field="slots",
        )
    members = {
        "number": known.number if known else state.next_topic,
        "ns": namespace,
        "name": name,
        "settings": settings.as_dict(),
        "made": made,
        "paused": known.paused if known else False,
    }
    topic = _put(state, members, now_ms)
    for group in topic.groups:
        # What was held back by another pace may go now.
        state.paced.pop((topic.number, group), None)
        state.woken.add((topic.number, group))
    return topic


def pause(state: EngineState, topic: Topic, now_ms: int, *, paused: bool) -> None:
    """Hand nothing out, or hand out again."""
    members = {
        "number": topic.number,
        "ns": topic.namespace,
        "name": topic.name,
        "settings": topic.settings.as_dict(),
        "made": topic.made,
        "paused": paused,
    }
    _put(state, members, now_ms)
    if not paused:
        state.woken.update((topic.number, group) for group in topic.groups)


def _put(state: EngineState, members: dict[str, Any], now_ms: int) -> Topic:
    position, end = _append(state, FrameKind.TOPIC, members, now_ms)
    apply_topic(state, members, position, end)
    return state.by_number[members["number"]]


def drop_topic(state: EngineState, topic: Topic, now_ms: int) -> None:
    """The topic goes, with all that lives in it; its name may be used anew."""
    members = {"number": topic.number, "dropped": True}
    position, end = _append(state, FrameKind.TOPIC, members, now_ms)
    apply_topic(state, members, position, end)


def put_group(
    state: EngineState, topic: Topic, name: str, now_ms: int, *, ephemeral: bool = False
) -> Group:
    """Make a named group, which sees what is sent from now on, or change how it ends."""
    known = topic.group(name)
    most = state.limits.groups_max
    if known is None and len(topic.groups) >= most:
        raise QuotaRefusal(
            f"topic {topic.name!r} has {len(topic.groups)} groups, and groups_max is {most}: "
            "drop groups that nobody needs, or raise groups_max in [limits]",
            quota="groups",
        )
    number = known.number if known else topic.next_group
    members = {"topic": topic.number, "number": number, "name": name, "ephemeral": ephemeral}
    position, end = _append(state, FrameKind.GROUP, members, now_ms)
    apply_group(state, members, position, end)
    return topic.groups[number]


def drop_group(state: EngineState, topic: Topic, group: Group, now_ms: int) -> None:
    """A named group goes; what lives for nobody else has ended."""
    if group.number == DEFAULT_GROUP:
        raise ConflictError("the default group goes by the setting default_group: false")
    members = {"topic": topic.number, "number": group.number, "dropped": True}
    position, end = _append(state, FrameKind.GROUP, members, now_ms)
    apply_group(state, members, position, end)


def purge(
    state: EngineState,
    topic: Topic,
    groups: list[Group],
    now_ms: int,
    *,
    force: bool,
    erase: bool = False,
) -> int:
    """End what waits or is ready in groups, by force also what is leased; returns how many.

    `erase`, which is by force and about all groups: bodies and all else of the topic's messages
    leave the files of every node; see `Compactor`.
    """
    assert not erase or (force and len(groups) == len(topic.groups)), "erasing is about all of it"
    before = sum(group.counts.living for group in groups)
    for group in groups:
        members = {
            "topic": topic.number,
            "group": group.number,
            "force": force,
            "time": now_ms,
            "keep": now_ms + topic.settings.ended_keep_ms,
        }
        if erase:
            members["erase"] = True
        position, end = _append(state, FrameKind.FLOOR, members, now_ms)
        apply_purge(state, members, position, end)
        group.suspect_until_ms = state.wheel.frontier() * 1000 + SUSPECT_MS
    return before - sum(group.counts.living for group in groups)


def _append(
    state: EngineState, kind: FrameKind, members: dict[str, Any], now_ms: int
) -> tuple[int, int]:
    return state.append(kind, [msgpack.packb(members)], now_ms)


# --------------------------------------------------------------------------- applying


def apply_topic(state: EngineState, members: dict[str, Any], position: int, end: int) -> None:
    """A topic is made, changed or dropped."""
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
            state.special.discard(number)
        state.next_topic = max(state.next_topic, number + 1)
        return
    settings = TopicSettings.from_dict(members["settings"])
    topic = state.by_number.get(number)
    if topic is None:
        topic = state.new_topic(number, members["ns"], members["name"], settings, members["made"])
        state.series.enter(topic)
    topic.settings, topic.made = settings, members["made"]
    topic.paused = members.get("paused", False)
    there = DEFAULT_GROUP in topic.groups
    if there and not settings.default_group:
        _leave(state, topic, topic.groups.pop(DEFAULT_GROUP), end)
        topic.default = state.new_group(topic.number, DEFAULT_GROUP, DEFAULT_NAME)
    elif settings.default_group and not there:
        # It was away: what was sent meanwhile it never saw.
        used = topic.sent or state.transactions.holds(number)
        topic.default.born = topic.default.floor = position if used else 0
        topic.groups[DEFAULT_GROUP] = topic.default
        state.series.enter_group(topic, topic.default)
    state.mark_special(topic)
    follow_settings(topic)


def apply_group(state: EngineState, members: dict[str, Any], position: int, end: int) -> None:
    """A named group is made, changed or dropped."""
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
            state.ephemeral.add((topic.number, number))
    topic.next_group = max(topic.next_group, number + 1)
    state.mark_special(topic)
    follow_settings(topic)


def _leave(state: EngineState, topic: Topic, group: Group, end: int) -> None:
    """All that lives in a group stops to."""
    state.hours.counts.count_living(group.hours, -1, end)
    state.hours.counts.count_guests(group.guests, -1, end)
    state.leases.drop(topic.number, group.number)
    state.claims.drop(topic.number, group.number)
    state.series.leave_group(group)
    group.forget_ready()
    if not state.replaying:
        state.gone.append((topic.namespace, topic.name, group.name))


def apply_purge(state: EngineState, members: dict[str, Any], position: int, end: int) -> None:
    """What waits or is ready in a group has ended; by force also what is leased."""
    state.before_change(members["topic"])
    topic = state.by_number[members["topic"]]
    group = topic.groups[members["group"]]
    refs, origins = state.leases.open_rows(topic.number, group.number)
    if members["force"] and len(refs):
        entries = np.zeros(1, STATE_ENTRY)
        entries["state"] = MessageState.DELETED
        entries["cause"] = Cause.PURGE
        entries["time"] = members["time"]
        state.hours.put_states(refs, np.repeat(entries, len(refs)), group.number)
        state.leases.drop(topic.number, group.number)
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
    group.counts.ended(MessageState.DELETED, group.counts.living - len(refs))
    topic.keep_until_ms = max(topic.keep_until_ms, members["keep"])
    if members.get("erase"):
        topic.erased = position
        state.erasing.add(topic.number)
    group.forget_ready()
    if group.made_gate is not None:
        group.gate.purge(origins.tolist())
    state.mark_special(topic)
