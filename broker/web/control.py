"""Handlers of single messages: get, cancel, reschedule."""

from __future__ import annotations

from typing import Any

import numpy as np
from aiohttp import web

from delaylog.broker.engine import control
from delaylog.broker.engine.control import ControlResult
from delaylog.broker.engine.finding import find_ids
from delaylog.broker.engine.found import just
from delaylog.broker.engine.model import Found, Topic
from delaylog.broker.web.context import Context
from delaylog.broker.web.deliveries import body_members, split_record
from delaylog.broker.web.problems import Problem
from delaylog.broker.web.shapes import (
    CANCEL_FORCE_QUERY,
    DELIVER_AT_MS,
    NEW_DELAY_MS,
    PRIORITY,
    READ,
    RESCHEDULE,
)
from delaylog.storage.layout import NEVER_MS, Cause, MessageState, ref_to_id


def the_topic(ctx: Context) -> Topic:
    """The topic of the path, or 404."""
    topic = ctx.node.engine.state.topics.get(ctx.topic_key)
    if topic is None:
        raise Problem("unknown", f"there is no topic {ctx.topic_key[1]!r}")
    return topic


def _find_one(ctx: Context) -> tuple[Topic, Found]:
    topic = the_topic(ctx)
    text = ctx.params["id"]
    found = find_ids(ctx.node.engine.state, topic, [text], ctx.node.clock.now_ms())[0]
    if found is None:
        raise Problem("unknown", f"topic {topic.name!r} has no message {text!r}")
    return topic, found


async def get_message(ctx: Context) -> web.StreamResponse:
    """GET …/messages/{id}."""
    READ.take(ctx.query(READ))
    state = ctx.node.engine.state
    topic, found = _find_one(ctx)
    refs = np.array([found.ref], np.int64)
    rows = np.array([found.row])
    text, key, tags, headers, body = split_record(state.hours.records(refs, rows), rows[0])
    row, entry = found.row, found.entry
    expires = int(row["expires_at"])
    members: dict[str, Any] = {
        "id": text or ref_to_id(found.origin),
        "topic": topic.name,
        "namespace": topic.namespace,
        "state": found.state.name.lower(),
        "cause": Cause(int(entry["cause"])).name.lower() if int(entry["cause"]) else None,
        "deliver_at_ms": int(row["deliver_at"]),
        "sent_at_ms": int(row["sent_at"]),
        "expires_at_ms": None if expires == NEVER_MS else expires,
        "attempts": int(entry["attempts"]),
        "max_retry": int(row["max_retry"]),
        "priority": int(row["priority"]),
        "key": key or None,
        "tags": tags,
        "headers": headers,
    }
    if found.state is MessageState.LEASED:
        until = state.leases.deadline_ms(int(entry["lease"]), found.ref)
        members["lease_until_ms"] = int(entry["time"]) if until is None else until
    elif found.state >= MessageState.ACKED:
        members["ended_at_ms"] = int(entry["time"])
    members.update(body_members(body, packed=ctx.packed))
    await ctx.node.durable(state.log.end_position)
    return ctx.answer(members)


async def _one_result(ctx: Context, result: ControlResult) -> web.StreamResponse:
    found = result.found.one(0)
    assert found is not None
    await ctx.node.durable(result.position)
    if result.codes[0] == control.TOO_LATE:
        raise Problem(
            "too_late",
            f"the message is {found.state.name.lower()}",
            state=found.state.name.lower(),
        )
    now_ms = ctx.node.clock.now_ms()
    fresh = find_ids(ctx.node.engine.state, the_topic(ctx), [ctx.params["id"]], now_ms)[0]
    kept = fresh or found
    return ctx.answer(
        {
            "result": "done",
            "state": kept.state.name.lower(),
            "deliver_at_ms": int(result.deliver_at_ms[0]),
        }
    )


async def cancel_message(ctx: Context) -> web.StreamResponse:
    """DELETE …/messages/{id}."""
    force = CANCEL_FORCE_QUERY.take(ctx.query(CANCEL_FORCE_QUERY))
    topic, found = _find_one(ctx)
    node = ctx.node
    result = control.cancel(
        node.engine.state,
        topic,
        just(found),
        node.clock.now_ms(),
        force=force,
    )
    return await _one_result(ctx, result)


async def reschedule_message(ctx: Context) -> web.StreamResponse:
    """PATCH …/messages/{id}."""
    members = RESCHEDULE.check(await ctx.members())
    due, priority = take_due(ctx, members), PRIORITY.take(members, ctx.node.engine.limits)
    if due is None and priority is None:
        raise Problem(
            "bad_request", "give deliver_at_ms, delay_ms or priority", field="deliver_at_ms"
        )
    topic, found = _find_one(ctx)
    node = ctx.node
    result = control.reschedule(
        node.engine.state,
        topic,
        just(found),
        node.clock.now_ms(),
        deliver_at_ms=due,
        priority=priority,
    )
    return await _one_result(ctx, result)


def take_due(ctx: Context, members: dict[str, Any]) -> int | None:
    """The new due time, None when neither it nor a delay is given."""
    limits = ctx.node.engine.limits
    due, delay = DELIVER_AT_MS.take(members, limits), NEW_DELAY_MS.take(members, limits)
    if due is not None and delay is not None:
        raise Problem("bad_request", "give deliver_at_ms or delay_ms, not both", field="delay_ms")
    return due if delay is None else ctx.node.clock.now_ms() + delay
