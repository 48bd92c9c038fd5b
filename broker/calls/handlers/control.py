"""Handlers of single messages: get, cancel, reschedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.forms.deliveries import own_members
from delaylog.broker.calls.forms.describing import describe
from delaylog.broker.calls.forms.tracing import failures_of, trace_members, traces_of
from delaylog.broker.calls.places import seen_by, the_topic
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.turn.writes import Change, change
from delaylog.broker.engine.control import changes as changing
from delaylog.broker.engine.control.changes import GroupedResult
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import FoundMessage, Topic
from delaylog.broker.engine.topics.groups import DEFAULT_NAME, Group
from delaylog.contract.message_fields import made_id
from delaylog.storage.layout import MessageState
from delaylog.storage.messages.records import split_record


def _find_one(ctx: Context, topic: Topic, group: Group) -> FoundMessage:
    text = ctx.params["id"]
    found = find_ids(ctx.node.engine.state, topic, [text], ctx.node.clock.now_ms(), group)[0]
    if found is None:
        where = "" if group.name == DEFAULT_NAME else f" for group {group.name!r}"
        raise _no_message(topic, text, where)
    return found


def _no_message(topic: Topic, text: str, where: str = "") -> Problem:
    made = made_id(text)
    hint = f"; an id that a broker makes begins with '~', such as {made!r}" if made else ""
    return Problem("unknown", f"topic {topic.name!r} has no message {text!r}{where}{hint}")


async def get_message(ctx: Context) -> Answer:
    """GET …/messages/{id}."""
    values = ctx.query_values()
    state = ctx.node.engine.state
    topic, group = seen_by(ctx, values)
    found = _find_one(ctx, topic, group)
    refs = np.array([found.ref], np.int64)
    rows = np.array([found.row])
    record = split_record(state.hours.records(refs, rows), found.row)
    members: dict[str, Any] = {
        "topic": topic.name,
        "namespace": topic.namespace,
        **describe(state, found, record),
    }
    told = ctx.caller.may("bodies", ctx.topic_key, group.name)
    if values["body"] and told:
        members |= own_members(record, packed=ctx.packed)
    members |= failures_of(state, topic, group, [found], told=told)[0]
    await ctx.node.durable(state.position)
    if values["life"]:
        traces = await traces_of(ctx, topic, group, [found])
        members |= trace_members(state, topic, group, traces, name="life", told=told)[0]
    return ctx.answer(members)


def _finder(ctx: Context, topic: Topic) -> Callable[[Group], FoundMessages]:
    """A function that finds the message of the path in a group."""
    state, now_ms, text = ctx.node.engine.state, ctx.node.clock.now_ms(), ctx.params["id"]
    return lambda group: find_ids(state, topic, [text], now_ms, group)


async def _one_result(ctx: Context, topic: Topic, grouped: GroupedResult) -> Answer:
    result = grouped.result
    found = result.found.one(0)
    await ctx.node.durable(result.position)
    if found is None:
        raise _no_message(topic, ctx.params["id"])
    if result.codes[0] == changing.TOO_LATE:
        state = found.state.name.lower()
        tried = " and was tried before" if found.state <= MessageState.READY else ""
        raise Problem("too_late", f"the message is {state}{tried}", state=state)
    late = grouped.late_for(0)
    # Report the present state in a group in which the change was made.
    find = _finder(ctx, topic)
    seen = (find(group).one(0) for group in topic.groups.values() if group.name not in late)
    fresh = next((each for each in seen if each is not None), found)
    members: dict[str, Any] = {
        "result": "done",
        "state": fresh.state.name.lower(),
        "deliver_at_ms": int(result.deliver_at_ms[0]),
    }
    if late:
        members["groups"] = late
    return ctx.answer(members)


async def cancel_message(ctx: Context) -> Answer:
    """DELETE …/messages/{id}."""
    values = ctx.query_values()
    await ctx.node.room_for_changes()
    topic = the_topic(ctx)
    wanted = Change("cancel", force=values["force"], untried=values["untried"])
    grouped = change(ctx.node, topic, _finder(ctx, topic), wanted)
    return await _one_result(ctx, topic, grouped)


async def reschedule_message(ctx: Context) -> Answer:
    """PATCH …/messages/{id}."""
    values = await ctx.values()
    due, priority = take_due(ctx, values), values["priority"]
    if due is None and priority is None:
        raise Problem(
            "bad_request", "give deliver_at_ms, delay_ms or priority", field="deliver_at_ms"
        )
    await ctx.node.room_for_changes()
    topic = the_topic(ctx)
    wanted = Change("reschedule", due, priority, untried=values["untried"])
    grouped = change(ctx.node, topic, _finder(ctx, topic), wanted)
    return await _one_result(ctx, topic, grouped)


def take_due(ctx: Context, values: dict[str, Any]) -> int | None:
    """The new due time, None if neither a time nor a delay is given."""
    due: int | None = values["deliver_at_ms"]
    delay: int | None = values["delay_ms"]
    if due is not None and delay is not None:
        raise Problem("bad_request", "give deliver_at_ms or delay_ms, not both", field="delay_ms")
    return due if delay is None else ctx.node.clock.now_ms() + delay
