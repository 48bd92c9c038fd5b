"""Decides whether a caller may settle the messages of a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delaylog.broker.calls.access.caller import Caller
    from delaylog.broker.engine.state import EngineState
    from delaylog.broker.host.waiters import TopicKey


def may_settle(caller: Caller, state: EngineState, key: TopicKey, lease: int) -> bool:
    """Whether the caller may settle messages of a lease: receipts name no group, and can be
    guessed.
    """
    if caller.may("receive", key):
        return True
    found = state.leases.get(lease)
    group = None if found is None else state.group(found.topic, found.group)
    return group is not None and caller.may("receive", key, group.name)
