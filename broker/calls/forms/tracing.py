"""What happened to messages, for answers: their steps, and why the last failed attempt failed.

Both are read from the log, which takes tens of milliseconds when it is long. So `reasons_of` reads
it only if an attempt at one of the messages may have failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delaylog.broker.calls.context import Context
from delaylog.broker.engine.model import FoundMessage, Topic
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.views.message_trace import Trace, Traces
from delaylog.storage.layout import MessageState


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


async def reasons_of(
    ctx: Context, topic: Topic, group: Group, found: Sequence[FoundMessage]
) -> list[str | None]:
    """Why the last failed attempt at each message failed, where its consumer said so."""
    if not any(map(_may_have_failed, found)):
        return [None] * len(found)
    return [last_reason(trace) for trace in await traces_of(ctx, topic, group, found)]


def trace_members(trace: Trace, name: str) -> dict[str, Any]:
    """The steps of a message, and whether none is missing."""
    return {name: trace.steps, f"{name}_complete": trace.complete}


def last_reason(trace: Trace) -> str | None:
    """Why the last failed attempt failed, if its consumer said so."""
    said = (step["reason"] for step in reversed(trace.steps) if "reason" in step)
    return next(said, None)


def _may_have_failed(found: FoundMessage) -> bool:
    """Whether more attempts have begun than one that is running or was successful."""
    good = found.state in (MessageState.LEASED, MessageState.ACKED)
    return int(found.entry["attempts"]) > good
