"""Finds the topic, group and failures that the path and the members of a call name, or refuses.

The refusal of a group lists the groups that exist and what to do.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from delaylog.broker.calls.access.caller import check_group
from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.shapes import named_group
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.topics.groups import DEFAULT_NAME, Group
from delaylog.contract.calls.shapes import GROUP

# ------------------------------------------------------------------------------- groups by name

GROUPS_NAMED: Final = 10
"""A refusal lists at most this number of groups."""


def named_in(topic: Topic, name: str) -> Group:
    """The group with this name in an existing topic, or 404."""
    group = the_group(topic, name)
    assert group is not None, "a missing group of an existing topic is refused"
    return group


def the_group(topic: Topic | None, name: str) -> Group | None:
    """The group of a call. None for the default group of a topic that does not exist yet.

    Raises a Problem (404) for any other group that does not exist.
    """
    group = None if topic is None else topic.group(name)
    if group is None and (topic is not None or name != DEFAULT_NAME):
        raise Problem("unknown", _no_group(topic, name), field="group")
    return group


def _no_group(topic: Topic | None, name: str) -> str:
    """The text of the refusal: there is no such group, and what to do about it."""
    if topic is None:
        return f"there is no group {name!r}, nor its topic; create it with PUT …/groups/{name}"
    names = [group.name for group in itertools.islice(topic.groups.values(), GROUPS_NAMED)]
    there = f"its groups are {', '.join(names)}" if names else "it has none yet"
    if name == DEFAULT_NAME:
        return f"topic {topic.name!r} has no default group, so name one; {there}"
    return (
        f"topic {topic.name!r} has no group {name!r}; {there}; create it with PUT …/groups/{name}: "
        "it sees messages sent from then on"
    )


# ----------------------------------------------------------------------------- places of a call


def the_topic(ctx: Context) -> Topic:
    """The topic of the path, or 404."""
    topic = ctx.node.engine.state.topics.get(ctx.topic_key)
    if topic is None:
        raise Problem("unknown", f"there is no topic {ctx.topic_key[1]!r}")
    return topic


def seen_by(ctx: Context, values: dict[str, Any]) -> tuple[Topic, Group]:
    """The topic of the path, and the group that the call names (absent: the default group)."""
    name = group_of(ctx, values)
    topic = the_topic(ctx)
    return topic, named_in(topic, name)


def seen_or_blank(ctx: Context, values: dict[str, Any]) -> tuple[Topic, Group]:
    """As `seen_by`, but a blank topic instead of one that nobody has made: it reads as empty.

    Only the default group of such a topic can be read, as only it can be received from.
    """
    name = group_of(ctx, values)
    state = ctx.node.engine.state
    topic = state.topics.get(ctx.topic_key)
    group = the_group(topic, name)
    if topic is None or group is None:
        topic = state.blank_topic(*ctx.topic_key)
        group = topic.default
    return topic, group


def group_of(ctx: Context, values: dict[str, Any]) -> str:
    """The name of the group that the call names (absent: the default group).

    Raises a Problem if the caller may not make this call for that group.
    """
    name = named_group(values[GROUP.name])
    permit_group(ctx, name)
    return name


def permit_group(ctx: Context, name: str | None) -> None:
    """Raise a Problem unless the caller may make this call for a group; None = for all groups."""
    if ctx.call is not None:
        state = ctx.node.engine.state
        check_group(ctx.caller, state, ctx.call.right, ctx.topic_key, name)


def failed_filter(ctx: Context, values: dict[str, Any], group: str | None) -> MessageFilter:
    """How the last attempt at the messages failed, as the call says.

    Reasons may quote messages: raises a Problem if the caller may not read bodies in that group.
    """
    reason, prefix = values.get("reason"), values.get("reason_prefix")
    if not (reason is None and prefix is None):
        ctx.caller.check("bodies", ctx.topic_key, group)
    return MessageFilter(
        cause=values.get("cause"),
        reason=None if reason is None else reason.decode(),
        reason_prefix=None if prefix is None else prefix.decode(),
    )
