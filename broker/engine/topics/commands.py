"""Commands on topics and groups: create, change, pause, purge and drop, one frame each.

A command checks limits, appends its frame and applies it (`apply/topic_frames.py`). It touches no
row, so a purge of fifty million messages costs as much as its hours and its open leases.
"""

from __future__ import annotations

from typing import Any

import msgpack

from delaylog.broker.engine.apply.topic_frames import apply_group, apply_purge, apply_topic
from delaylog.broker.engine.errors import ConflictError, QuotaRefusal
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, Group
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.storage.layout import FrameKind

SUSPECT_MS = 60_000
"""Rows that were being loaded during a purge may leave the wheel up to this time later."""


def get_or_make_topic(state: EngineState, namespace: str, name: str, now_ms: int) -> Topic:
    """The topic; created with default settings if it does not exist."""
    topic = state.topics.get((namespace, name))
    return topic or put_topic(state, namespace, name, TopicSettings(), now_ms, made=False)


def _check_room(state: EngineState) -> None:
    """Raises QuotaRefusal if the number of topics is at its limit."""
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
    """Create a topic or change its settings."""
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
        # The new rate limit may let more through.
        state.marks.rate_limited.pop((topic.number, group), None)
        state.marks.newly_ready.add((topic.number, group))
    return topic


def pause(state: EngineState, topic: Topic, now_ms: int, *, paused: bool) -> None:
    """Pause receives from a topic, or resume them."""
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
        state.marks.newly_ready.update((topic.number, group) for group in topic.groups)


def _put(state: EngineState, members: dict[str, Any], now_ms: int) -> Topic:
    position, end = _append(state, FrameKind.TOPIC, members, now_ms)
    apply_topic(state, members, position, end, now_ms)
    return state.by_number[members["number"]]


def drop_topic(state: EngineState, topic: Topic, now_ms: int) -> None:
    """Drop a topic and all messages in it; its name may be used again."""
    members = {"number": topic.number, "dropped": True}
    position, end = _append(state, FrameKind.TOPIC, members, now_ms)
    apply_topic(state, members, position, end, now_ms)


def put_group(
    state: EngineState, topic: Topic, name: str, now_ms: int, *, ephemeral: bool = False
) -> Group:
    """Create a named group, which sees what is sent from now on, or change `ephemeral`."""
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
    """Drop a named group; messages that live in no other group have ended."""
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
    """End what waits or is ready in groups, with `force` also what is leased; returns how many.

    `erase` needs `force` and all groups: every byte of the topic's messages is removed from the
    files of every node; see `Compactor`.
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
