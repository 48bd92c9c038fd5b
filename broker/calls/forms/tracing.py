"""What happened to messages, for answers: their steps, and why attempts at them failed.

The steps are read from the log, which takes tens of milliseconds when it is long. Failures are in
memory, and are kept when the log has none of the steps any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from delaylog.broker.calls.context import Context
from delaylog.broker.engine.failures.failure_table import Failure
from delaylog.broker.engine.lookup.find_messages import find_origins, ids_of
from delaylog.broker.engine.model import FoundMessage, Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.views.message_trace import Trace, Traces


async def traces_of(
    ctx: Context, topic: Topic, group: Group, found: Sequence[FoundMessage]
) -> list[Trace]:
    """The traces of messages as a group saw them."""
    node = ctx.node
    traces = Traces(
        node.engine.state,
        topic,
        found,
        group=group,
        now_ms=node.clock.now_ms(),
        clock=node.machine.steady_s,
    )
    await node.run(traces.work())
    return traces.traces


def failures_of(
    state: EngineState, topic: Topic, group: Group, found: Sequence[FoundMessage]
) -> list[dict[str, Any]]:
    """`reason` and `failures` of each message: why the last failed attempt at it failed, where its
    consumer said so, and all failed attempts that are kept.
    """
    origins = np.array([each.origin for each in found], np.int64)
    kept = state.failures.of(topic.number, group.number, origins)
    return [_members(kept.get(each.origin, [])) for each in found]


def _members(failures: list[Failure]) -> dict[str, Any]:
    said = (failure.reason for failure in reversed(failures) if failure.reason)
    return {
        "reason": next(said, None),
        "failures": [failure.members() for failure in failures],
    }


def trace_members(
    state: EngineState, topic: Topic, group: Group, trace: Trace, name: str
) -> dict[str, Any]:
    """The steps of a message, whether none is missing, and why it had to wait."""
    holders = [wait.origin for wait in trace.waits if wait.origin]
    found = find_origins(state, np.array(holders, np.int64), topic, group=group)
    ids = dict(zip(holders, ids_of(state, found), strict=True))
    waits = [
        wait.members() | ({"held_by": ids[wait.origin]} if wait.origin else {})
        for wait in trace.waits
    ]
    return {name: trace.steps, f"{name}_complete": trace.complete, "waits": waits}
