"""What answers say of stored messages: their members, their steps, and why attempts at them failed.

A message is described from its row, its state and its record. The steps are read from the log,
which takes tens of milliseconds when it is long. Failures are in memory, and are kept when the log
has none of the steps any more. Consumers write reasons, often from exceptions that quote the
message, so callers without the right `bodies` see none (`with_reasons`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from delaylog.broker.calls.context import Context
from delaylog.broker.engine.deliver.failures import Failure
from delaylog.broker.engine.lookup.find_messages import find_origins, ids_of
from delaylog.broker.engine.model import FoundMessage, Topic, cause_name
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.views.message_trace import Trace, Traces
from delaylog.storage.layout import NEVER_MS, MessageState, ref_to_id
from delaylog.storage.messages.records import Record

# -------------------------------------------------------------------------------------- members


def describe(state: EngineState, found: FoundMessage, record: Record) -> dict[str, Any]:
    """The members of a message except its headers and its body."""
    row, entry, shown = found.row, found.entry, found.state
    cause, expires = int(entry["cause"]), int(row["expires_at"])
    members: dict[str, Any] = {
        "id": record.id or ref_to_id(found.origin),
        "state": shown.name.lower(),
        "cause": cause_name(int(entry["state"]), cause) if cause else None,
        "deliver_at_ms": int(row["deliver_at"]),
        "sent_at_ms": int(row["sent_at"]),
        "expires_at_ms": None if expires == NEVER_MS else expires,
        "attempts": int(entry["attempts"]),
        "max_retry": int(row["max_retry"]),
        "priority": int(row["priority"]),
        "key": record.key or None,
        "tags": record.tags,
    }
    if shown is MessageState.LEASED:
        until = state.leases.deadline_ms(int(entry["lease"]), found.ref)
        members["lease_until_ms"] = int(entry["time"]) if until is None else until
        lease = state.leases.get(int(entry["lease"]))
        members["consumer"] = (lease.consumer if lease else "") or None
        members["address"] = (lease.address if lease else "") or None
    elif shown >= MessageState.ACKED:
        members["ended_at_ms"] = int(entry["time"])
    return members


# --------------------------------------------------------------------------- steps and failures

TRACES_KEPT: Final = 16
"""Traces that a later call can read on: a megabyte each at most."""


async def traces_of(
    ctx: Context, topic: Topic, group: Group, found: Sequence[FoundMessage]
) -> list[Trace]:
    """The traces of messages as a group saw them.

    The log is read on where the last call for the same message ended: a page asks again and again.
    """
    node, state, now_ms = ctx.node, ctx.node.engine.state, ctx.node.clock.now_ms()
    # A purge that erases also erases what the log said.
    key = (topic.number, topic.erased, group.number, *(one.origin for one in found))
    # Removed, since only one call at a time can read it on.
    traces: Traces | None = state.recent_traces.pop(key, None)
    if traces is None:
        clock = node.machine.steady_s
        traces = Traces(state, topic, found, group=group, now_ms=now_ms, clock=clock)
    else:
        traces.again(found, now_ms)
    await node.run(traces.work())
    # A follower's log may be cut back.
    if len(found) == 1 and not state.following:
        state.recent_traces[key] = traces
        if len(state.recent_traces) > TRACES_KEPT:
            state.recent_traces.popitem(last=False)
    return traces.traces


def failures_of(
    state: EngineState,
    topic: Topic,
    group: Group,
    found: Sequence[FoundMessage],
    *,
    with_reasons: bool,
) -> list[dict[str, Any]]:
    """`reason` and `failures` of each message: why the last failed attempt at it failed (None if
    its consumer did not say so), and all failed attempts that are kept.
    """
    origins = np.array([each.origin for each in found], np.int64)
    kept = state.failures.of(topic.number, group.number, origins)
    return [_members(kept.get(each.origin, []), with_reasons) for each in found]


def _members(failures: list[Failure], with_reasons: bool) -> dict[str, Any]:
    members = [failure.members() for failure in failures]
    if not with_reasons:
        members = [each | {"reason": None} for each in members]
    return {"reason": members[-1]["reason"] if members else None, "failures": members}


def trace_members(
    state: EngineState,
    topic: Topic,
    group: Group,
    traces: Sequence[Trace],
    *,
    name: str,
    with_reasons: bool,
) -> list[dict[str, Any]]:
    """The steps of each message, whether none is missing, and why it had to wait.

    Without `with_reasons` the reasons of nacks are left out.
    """
    holders = list({wait.origin for trace in traces for wait in trace.waits if wait.origin})
    found = find_origins(state, np.array(holders, np.int64), topic, group=group)
    ids = dict(zip(holders, ids_of(state, found), strict=True))
    out: list[dict[str, Any]] = []
    for trace in traces:
        waits = [
            wait.members() | ({"held_by": ids[wait.origin]} if wait.origin else {})
            for wait in trace.waits
        ]
        steps = trace.steps
        if not with_reasons:
            steps = [{key: step[key] for key in step if key != "reason"} for step in steps]
        out.append({name: steps, f"{name}_complete": trace.complete, "waits": waits})
    return out
