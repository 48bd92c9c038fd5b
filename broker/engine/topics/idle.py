"""Drops topics and groups that are not used any more."""

from __future__ import annotations

from functools import partial
from typing import Final

from delaylog.broker.engine.deliver.ready_again import known_rows
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.commands import drop_group, drop_topic
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.upkeep.archive import keeps_topic

TOPIC_IDLE_MS: Final = 1_800_000
"""An empty topic that a send created is dropped after this time without use: who uses topics with
names such as those of orders leaves them behind."""
EPHEMERAL_IDLE_MS: Final = 300_000
"""An ephemeral group is dropped after this time without a receive: a restart takes less."""
RETIRE_MAX: Final = 256
"""Topics dropped in one call, at most."""
LOOK_MIN: Final = 1_024
"""Topics checked in one call, at least."""
ROUND_CALLS: Final = 120
"""Calls in which each topic is checked once: ten minutes."""


def retire_unused(state: EngineState, now_ms: int) -> int:
    """Drop idle ephemeral groups, and idle empty topics that a send created; returns how many.

    Called every few seconds. Each call checks a part of the topics. A topic is kept while a message
    in it lives, must stay readable, or waits for the archive.
    """
    gone = _retire_groups(state, now_ms)
    if not state.marks.retire_queue:
        state.marks.retire_queue = list(reversed(state.by_number))
    for _ in range(max(LOOK_MIN, len(state.by_number) // ROUND_CALLS)):
        if not state.marks.retire_queue or gone >= RETIRE_MAX:
            break
        topic = state.by_number.get(state.marks.retire_queue.pop())
        if topic is None or not _is_left_over(topic):
            continue
        if (topic.number, DEFAULT_GROUP) in state.targets.targets:
            continue
        if state.transactions.has_rows_of(topic.number) or keeps_topic(state, topic):
            continue
        if state.schedules.has_some(topic.number):
            continue
        topic.used_ms = topic.used_ms or now_ms
        idle_ms = now_ms - max(topic.used_ms, topic.keep_until_ms)
        if idle_ms >= 0 and now_ms - topic.used_ms >= TOPIC_IDLE_MS:
            drop_topic(state, topic, now_ms)
            gone += 1
    return gone


def _retire_groups(state: EngineState, now_ms: int) -> int:
    gone = 0
    for key in list(state.marks.ephemeral):
        topic, group = state.by_number.get(key[0]), state.group(*key)
        if topic is None or group is None or not group.ephemeral:
            state.marks.ephemeral.discard(key)
            continue
        if key in state.targets.targets:
            # Pushes use it, also while its breaker is open and nothing is received.
            continue
        group.used_ms = group.used_ms or now_ms
        if now_ms - group.used_ms >= EPHEMERAL_IDLE_MS:
            drop_group(state, topic, group, now_ms)
            gone += 1
    return gone


def look_after_groups(state: EngineState, now_ms: int) -> None:
    """Close the queues of unused filters."""
    for key in list(state.marks.filtered):
        group = state.group(*key)
        if group is not None:
            group.ready.expire_filters(now_ms, partial(known_rows, state))
        if group is None or not group.ready.filtered:
            state.marks.filtered.discard(key)


def _is_left_over(topic: Topic) -> bool:
    """Whether it was created by a send, has default settings and is empty."""
    made_for_something = topic.made or topic.paused or not topic.plain
    return not made_for_something and topic.living == 0 and topic.settings == TopicSettings()
