"""Topics and groups that nobody uses any more: they go by themselves."""

from __future__ import annotations

from typing import Final

from delaylog.broker.engine.deliver.late_holders import end_late_holders
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.changing import drop_group, drop_topic
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.upkeep.archiving import keeps_topic

RETIRE_MAX: Final = 256
"""Topics dropped in one call."""
LOOK_MIN: Final = 1_024
"""Topics looked at in one call, at least."""
ROUND_CALLS: Final = 120
"""Calls in which each topic is looked at once: ten minutes."""


def retire_unused(state: EngineState, now_ms: int) -> int:
    """Drop ephemeral groups without consumers, and empty topics that nobody made on purpose.

    Called every few seconds; of many topics a call looks at a part, in turn. A topic stays while
    anything in it lives, is still readable, or waits for the archive. Returns how many went.
    """
    gone = _retire_groups(state, now_ms)
    if not state.unlooked:
        state.unlooked = list(reversed(state.by_number))
    for _ in range(max(LOOK_MIN, len(state.by_number) // ROUND_CALLS)):
        if not state.unlooked or gone >= RETIRE_MAX:
            break
        topic = state.by_number.get(state.unlooked.pop())
        if topic is None or not _is_left_over(topic):
            continue
        if state.transactions.holds(topic.number) or keeps_topic(state, topic):
            continue
        topic.used_ms = topic.used_ms or now_ms
        idle_ms = now_ms - max(topic.used_ms, topic.keep_until_ms)
        if idle_ms >= 0 and now_ms - topic.used_ms >= state.limits.topic_idle_ms:
            drop_topic(state, topic, now_ms)
            gone += 1
    return gone


def _retire_groups(state: EngineState, now_ms: int) -> int:
    gone = 0
    for place in list(state.ephemeral):
        topic, group = state.by_number.get(place[0]), state.group(*place)
        if topic is None or group is None or not group.ephemeral:
            state.ephemeral.discard(place)
            continue
        group.used_ms = group.used_ms or now_ms
        if now_ms - group.used_ms >= state.limits.ephemeral_idle_ms:
            drop_group(state, topic, group, now_ms)
            gone += 1
    return gone


def look_after_groups(state: EngineState, now_ms: int) -> None:
    """Close unused filters, and end messages past their ttl that hold others up."""
    for place in list(state.filtered):
        group = state.group(*place)
        if group is not None:
            group.ready.expire_filters(now_ms)
        if group is None or not group.ready.filtered:
            state.filtered.discard(place)
    for place in list(state.holders):
        topic, group = state.by_number.get(place[0]), state.group(*place)
        if topic is None or group is None or not group.gate.remembers_origins:
            state.holders.discard(place)
            continue
        end_late_holders(state, topic, group, now_ms)


def _is_left_over(topic: Topic) -> bool:
    """Made by a send alone, with nothing in it."""
    made_for_something = topic.made or topic.paused or not topic.plain
    return not made_for_something and topic.living == 0 and topic.settings == TopicSettings()
