"""Commands on push targets: set, drop, note what pushes learned. Each appends a TARGET frame."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import msgpack

from delaylog.broker.engine.apply.topic_frames import apply_target
from delaylog.broker.engine.errors import QuotaRefusal, UnknownError
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.push.targets import BY_OPERATOR, WELL, GroupKey, Health, Target
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.layout import FrameKind

TARGETS_MAX: Final = 10_000
"""A limit, because each checkpoint contains all targets."""


def the_target(state: EngineState, topic: Topic, group: Group) -> tuple[Target, Health]:
    """The target of a group, and its health. Raises UnknownError."""
    key = (topic.number, group.number)
    target = state.targets.targets.get(key)
    if target is None:
        raise UnknownError(f"group {group.name!r} of topic {topic.name!r} has no target")
    return target, state.targets.healths[key]


def put_target(
    state: EngineState,
    topic: Topic,
    group: Group,
    target: Target,
    now_ms: int,
    *,
    health: Health | None = None,
) -> Health:
    """Create the target of a group, or replace it; returns its health.

    Without a `health` the failures so far are forgotten, and what an operator has disabled stays
    disabled.
    """
    table, key = state.targets.targets, (topic.number, group.number)
    if health is None:
        disabled = state.targets.healths.get(key, WELL).disabled
        health = Health(BY_OPERATOR) if disabled == BY_OPERATOR else WELL
    if key not in table and len(table) >= TARGETS_MAX:
        raise QuotaRefusal(f"there are {TARGETS_MAX} push targets, which is the limit")
    _append(state, key, now_ms, target=asdict(target), health=health.as_dict())
    return health


def drop_target(state: EngineState, topic: Topic, group: Group, now_ms: int) -> None:
    """Push nothing more. Raises UnknownError."""
    the_target(state, topic, group)
    _append(state, (topic.number, group.number), now_ms, target=None)


def note_health(state: EngineState, key: GroupKey, health: Health, now_ms: int) -> None:
    """Store what pushes have learned of a target; nothing if the target is gone."""
    if state.targets.healths.get(key, health) != health:
        _append(state, key, now_ms, health=health.as_dict())


def _append(state: EngineState, key: GroupKey, now_ms: int, **more: Any) -> None:
    members = {"topic": key[0], "group": key[1], **more}
    packed: bytes = msgpack.packb(members)
    state.append(FrameKind.TARGET, [packed], now_ms)
    apply_target(state, members, now_ms)
