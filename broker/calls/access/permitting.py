"""Decides whether a caller may make a call, by the call's row in the table of calls.

A call that names its group in the body or the query passes here if the caller has the right for
some group; its handler checks the group (`places.permit_group`). A call about no topic passes if
the caller has the right for some topic, and `admin` for all; its handler leaves out what the caller
may not see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delaylog.broker.calls.access.caller import ANYONE, Caller
from delaylog.broker.calls.problems import Problem
from delaylog.contract.calls.table import ALL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delaylog.broker.engine.state import EngineState
    from delaylog.broker.host.waiters import TopicKey
    from delaylog.contract.calls.call import ApiCall, Right

_OF_SOME_GROUP: Final = {call.name: call.names_group or call.lists_groups for call in ALL}
"""Calls for which the right for one group of the topic is enough here."""


def permit(caller: Caller, call: ApiCall, key: TopicKey, params: Mapping[str, str]) -> None:
    """Raise a Problem (403) unless the caller may make this call."""
    if caller is ANYONE:
        return
    right = call.right
    if key[1] == "":
        if right == "admin":
            caller.check_everywhere(right)
        else:
            caller.check_somewhere(right)
    elif "group" in params:
        caller.check(right, key, params["group"])
    elif _OF_SOME_GROUP[call.name]:
        caller.check_some_group(right, key)
    else:
        caller.check(right, key)


def check_group(
    caller: Caller, state: EngineState, right: Right, key: TopicKey, name: str | None
) -> None:
    """Raise a Problem unless the caller has the right for a group of a topic; None = for all."""
    if caller.permissions.may(right, key):
        return
    caller.check(right, key, name)
    topic = state.topics.get(key)
    if topic is not None and name is not None and topic.group(name) is None:
        # The refusal of `named_groups` lists groups, whose names this caller must not learn.
        raise Problem("unknown", f"topic {topic.name!r} has no group {name!r}", field="group")


def may_settle(caller: Caller, state: EngineState, key: TopicKey, lease: int) -> bool:
    """Whether a caller may settle the messages of a lease.

    A receipt names no group and can be guessed, so the group of its lease decides.
    """
    if caller.may("receive", key):
        return True
    found = state.leases.get(lease)
    group = None if found is None else state.group(found.topic, found.group)
    return group is not None and caller.may("receive", key, group.name)
