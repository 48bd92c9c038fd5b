"""Finds the group that a call names; the refusal lists the groups that exist and what to do."""

from __future__ import annotations

import itertools
from typing import Final

from delaylog.broker.calls.problems import Problem
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.topics.groups import DEFAULT_NAME, Group

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
