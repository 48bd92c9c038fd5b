"""Topics and groups that nobody uses any more: they go by themselves."""

from __future__ import annotations

from delaylog.broker.engine.archiving import keeps_topic
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.settings import TopicSettings
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics import drop_group, drop_topic

RETIRE_MAX = 256
"""Topics dropped in one call."""


def retire_unused(state: EngineState, now_ms: int) -> int:
    """Drop ephemeral groups without consumers, and empty topics that nobody made on purpose.

    A topic stays while anything in it lives, is still readable, or waits for the archive. Returns
    how many went.
    """
    gone = 0
    limits = state.limits
    for topic in list(state.by_number.values()):
        for group in list(topic.groups.values()):
            if group.ephemeral:
                group.used_ms = group.used_ms or now_ms
                if now_ms - group.used_ms >= limits.ephemeral_idle_ms:
                    drop_group(state, topic, group, now_ms)
                    gone += 1
        held = state.transactions.holds(topic.number) or keeps_topic(state, topic)
        if _is_left_over(topic) and not held:
            topic.used_ms = topic.used_ms or now_ms
            idle_ms = now_ms - max(topic.used_ms, topic.keep_until_ms)
            if idle_ms >= 0 and now_ms - topic.used_ms >= limits.topic_idle_ms:
                drop_topic(state, topic, now_ms)
                gone += 1
                if gone >= RETIRE_MAX:
                    break
    return gone


def _is_left_over(topic: Topic) -> bool:
    """Made by a send alone, with nothing in it."""
    made_for_something = topic.made or topic.paused or not topic.plain
    return not made_for_something and topic.living == 0 and topic.settings == TopicSettings()
