"""Handlers that list messages: lists, dead letters, the forecast of due messages, and the tail.

The tail of a topic shows what is handed out, without leasing it.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack
import numpy as np

from delaylog.broker.calls.answers import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.forms.deliveries import own_members
from delaylog.broker.calls.forms.descriptions import describe, failures_of, trace_members, traces_of
from delaylog.broker.calls.places import failed_filter, group_of, seen_or_blank, the_topic
from delaylog.broker.engine.deliver.failure_reasons import DeadReasons
from delaylog.broker.engine.lookup.find_messages import find_origins, ids_of
from delaylog.broker.engine.model import NO_TOPIC
from delaylog.broker.engine.views.counts import Forecast
from delaylog.broker.engine.views.list_page import Effort, Listed, ListQuery, Page
from delaylog.broker.engine.views.listing import Listing
from delaylog.contract.calls.shapes import TAIL_MAX, WITH_TAG
from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import MessageState


async def list_messages(ctx: Context) -> Answer:
    """GET …/messages."""
    values = ctx.query_values()
    states = frozenset(MessageState[word.upper()] for word in values["state"])
    page, now_ms = await _page(ctx, values, states)
    messages = [_members(ctx, listed) for listed in page.messages]
    return ctx.answer({"messages": messages, "cursor": page.cursor, "now_ms": now_ms})


async def list_dead(ctx: Context) -> Answer:
    """GET …/dead: dead letters, with what happened to each."""
    values = ctx.query_values()
    page, now_ms = await _page(ctx, values, frozenset([MessageState.DEAD]))
    messages = [_members(ctx, listed) for listed in page.messages]
    topic, group = seen_or_blank(ctx, values)
    state, allowed = ctx.node.engine.state, ctx.caller.may("bodies", ctx.topic_key, group.name)
    failures = failures_of(state, topic, group, page.messages, with_reasons=allowed)
    for members, failed in zip(messages, failures, strict=True):
        members |= failed
    if values["history"] and messages:
        traces = await traces_of(ctx, topic, group, page.messages)
        steps = trace_members(state, topic, group, traces, name="history", with_reasons=allowed)
        for members, said in zip(messages, steps, strict=True):
            members |= said
    return ctx.answer({"messages": messages, "cursor": page.cursor, "now_ms": now_ms})


async def list_dead_reasons(ctx: Context) -> Answer:
    """GET …/dead/reasons: dead letters by the reason of their last failure; to callers without the
    right `bodies`, by its cause alone.
    """
    node, values = ctx.node, ctx.query_values()
    state = node.engine.state
    topic, group = seen_or_blank(ctx, values)
    wanted = failed_filter(ctx, values, group.name)
    by_reason = ctx.caller.may("bodies", ctx.topic_key, group.name)
    limit, exact = values["limit"], values["exact"]
    counted = DeadReasons(
        state, topic, group, wanted, limit=limit, by_reason=by_reason, exact=exact
    )
    await node.run(counted.work())
    await node.durable(state.position)
    origins = np.array([reason.origin for reason in counted.most], np.int64)
    found = find_origins(state, origins, topic, node.clock.now_ms(), group)
    ids = ids_of(state, found)
    reasons = [
        reason.members | {"last_id": id_} for reason, id_ in zip(counted.most, ids, strict=True)
    ]
    return ctx.answer(
        {
            "topic": topic.name,
            "group": group.name,
            "reasons": reasons,
            "rest": counted.rest,
            "other": counted.other,
            "now_ms": node.clock.now_ms(),
        }
    )


async def _page(
    ctx: Context, values: dict[str, Any], states: frozenset[MessageState]
) -> tuple[Page, int]:
    """A page of the topic's messages in some states, and the time that it shows."""
    node, cursor, tag = ctx.node, values["cursor"], values["tag"]
    if values["bodies"]:
        ctx.caller.check("bodies", ctx.topic_key, group_of(ctx, values))
    if tag == b"" or (tag is not None and b"\n" in tag):
        raise WITH_TAG.wrong("has one byte or more and no newline", None)
    topic, group = seen_or_blank(ctx, values)
    query = ListQuery(
        states,
        values["due_from"],
        values["due_to"],
        tag,
        values["key"],
        limit=values["limit"],
        bodies=values["bodies"],
        cursor=None if cursor is None else cursor.decode(),
        **failed_filter(ctx, values, group.name).failure,
    )
    now_ms = node.clock.now_ms()
    if topic.number == NO_TOPIC:
        return Page(), now_ms
    listing = Listing(
        node.engine.state,
        topic,
        query,
        Effort(ctx.node.machine.steady_s),
        group=group,
        now_ms=now_ms,
    )
    await node.run(listing.work())
    await node.durable(node.engine.state.position)
    return listing.page, now_ms


def _members(ctx: Context, listed: Listed) -> dict[str, Any]:
    state = ctx.node.engine.state
    try:
        record = listed.head.decode(listed.body or b"")
    except (ValueError, msgpack.UnpackException) as error:
        # No hash in a row covers headers, and without bodies the checksum of both is not verified.
        path, offset = f"{state.folder}/hours", int(listed.row["offset"])
        raise CorruptionError("damaged headers", path=path, position=offset) from error
    members = describe(state, listed, record)
    if listed.body is not None:
        members |= own_members(record, packed=ctx.form.packed)
    return members


async def forecast(ctx: Context) -> Answer:
    """GET …/forecast: messages that become due, and firings, per minute and per hour."""
    node, values = ctx.node, ctx.query_values()
    minutes, hours = values["minutes"], values["hours"]
    topic, group = seen_or_blank(ctx, values)
    now_ms = node.clock.now_ms()
    counted = Forecast(node.engine.state, topic, now_ms, minutes=minutes, hours=hours, group=group)
    await node.run(counted.work())
    return await ctx.durable_answer(
        {
            "topic": topic.name,
            "now_ms": now_ms,
            "minutes": counted.minutes,
            "hours": counted.hours,
            "later": counted.later,
            "schedules": counted.firings.schedules,
            "schedules_left": counted.firings.left,
            "firings_until_ms": counted.firings.until_ms,
        }
    )


# ------------------------------------------------------------------------------------- the tail

POLL_SECONDS: Final = 0.1
"""How often a waiting call looks. It wakes nobody who receives."""


async def get_tail(ctx: Context) -> Answer:
    """GET …/tail: hand-outs from the number `after` on, or from now on."""
    values = ctx.query_values()
    node, topic = ctx.node, the_topic(ctx)
    taps = node.engine.state.taps
    wait_ms = values["wait_ms"]
    tap = taps.of(topic.number, node.clock.now_ms())
    after = values["after"] or tap.next
    until_s = node.time_s() + wait_ms / 1000
    ctx.wait_ms = wait_ms
    while tap.next <= after and node.time_s() < until_s and not node.stopping:
        await node.pause(POLL_SECONDS)
        # The engine, or the tap, may have been replaced meanwhile.
        tap = node.engine.state.taps.of(topic.number, node.clock.now_ms())
    found, complete = tap.since(after, TAIL_MAX)
    return ctx.answer(
        {
            "messages": [
                {
                    "id": each.id,
                    "group": each.group,
                    "consumer": each.consumer,
                    "handed_out_ms": each.at_ms,
                    "deliver_at_ms": each.deliver_at_ms,
                    "attempts": each.attempts,
                    "size": each.size,
                }
                for each in found
            ],
            "next": found[-1].number + 1 if found else max(after, tap.next),
            "complete": complete,
            "now_ms": node.clock.now_ms(),
        }
    )
