"""Handlers of recurring schedules: list, read, put, change, drop, pause, resume, run, preview.

The engine checks members and decides. Bodies and headers of a schedule are shown as those of
messages are: to callers with the right for bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.forms.deliveries import body_members
from delaylog.broker.calls.places import the_topic
from delaylog.broker.calls.shapes import take_body
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.schedules.commands import (
    Instants,
    anchored,
    drop_schedule,
    instant_by_hand,
    list_schedules,
    patch_schedule,
    pause_schedule,
    plan_backfill,
    planned_schedule,
    previewed,
    put_schedule,
    resume_schedule,
    run_now,
    send_backfill,
    spec_of,
    the_schedule,
)
from delaylog.broker.engine.schedules.runner import begin_after, recall_ahead, unpack_message
from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.broker.engine.send.sends import check_room
from delaylog.broker.rules.schedules.dialects.table import with_converted
from delaylog.broker.rules.schedules.explain import explain
from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.zones import PACKAGED
from delaylog.contract.calls.schedules import (
    MESSAGE_FIELDS,
    NAME,
    PUT_SCHEDULE,
    TIMING_MEMBERS,
    TRY_SCHEDULE,
    UPDATE_SCHEDULE,
    check_times,
)
from delaylog.contract.calls.shapes import JSON_VALUES_MAX
from delaylog.contract.members import Shape
from delaylog.contract.times import UNIX_MS_MIN

PAGE_BYTES: Final = 4 << 20
"""A page of a list ends before its messages have more than this size, unless it is one message."""
_TOPICS_STEP: Final = 500
"""Topics whose rights are looked up in one turn: about 1 ms."""
_BODIES: Final = ("body", "body_base64")
_CURSOR_DIGITS: Final = 20
"""A cursor is the number of a schedule."""


async def list_schedules_(ctx: Context) -> Answer:
    """GET …/schedules: a page. A topic that does not exist yet reads as empty."""
    values = ctx.query_values()
    state, limit = ctx.node.engine.state, values["limit"]
    topic = state.topics.get(ctx.topic_key)
    cursor = values["cursor"] or b"0"
    if not cursor.isdigit() or len(cursor) > _CURSOR_DIGITS:
        raise Problem("bad_request", "cursor is not one of an earlier page", field="cursor")
    if topic is None:
        return ctx.answer({"schedules": [], "cursor": None})
    page: list[Schedule] = []
    size, more = 0, None
    for one in list_schedules(state, topic, after=int(cursor), limit=limit + 1):
        size += len(one.spec.message)
        if page and (len(page) == limit or size > PAGE_BYTES):
            more = str(page[-1].number)
            break
        page.append(one)
    return ctx.answer({"schedules": [_describe(ctx, topic, one) for one in page], "cursor": more})


async def list_all_schedules(ctx: Context) -> Answer:
    """GET /v1/schedules: those of all topics that fire next; those that do not fire come last."""
    limit, state = ctx.query_values()["limit"], ctx.node.engine.state
    may, readable = ctx.caller.permissions, None
    if not may.may_everywhere("read"):
        named = []
        for at, (key, each) in enumerate(list(state.topics.items()), 1):
            if at % _TOPICS_STEP == 0:
                await ctx.node.pause()
            if may.may("read", key):
                named.append(each.number)
        readable = np.array(named, np.int64)
    found = []
    for number in state.schedules.soonest(limit, readable):
        one = state.schedules.get(number)
        topic = None if one is None else state.by_number.get(one.topic)
        if one is not None and topic is not None:
            found.append(_describe(ctx, topic, one))
    return ctx.answer({"schedules": found, "cursor": None})


async def get_schedule(ctx: Context) -> Answer:
    """GET …/schedules/{s}."""
    return ctx.answer(_describe(ctx, *_the_schedule(ctx)))


async def put_schedule_(ctx: Context) -> Answer:
    """PUT …/schedules/{s}: create a schedule, or replace it."""
    members, body = await _given(ctx, PUT_SCHEDULE, body_needed=True)
    node, key, name = ctx.node, ctx.topic_key, ctx.params["schedule"]
    state, now_ms = node.engine.state, node.clock.now_ms()
    check_room(state, node.free_bytes())
    topic = state.topics.get(key)
    if topic is None:
        # A refused schedule makes no topic.
        planned_schedule(state, state.blank_topic(*key), name, members, body or b"", now_ms)
        topic = node.engine.make_topic(key[1], now_ms, key[0])
    known = state.schedules.find(topic.number, name)
    one = put_schedule(state, topic, name, members, body or b"", now_ms)
    return await _changed(ctx, topic, one, status=200 if known else 201)


async def update_schedule(ctx: Context) -> Answer:
    """PATCH …/schedules/{s}."""
    members, body = await _given(ctx, UPDATE_SCHEDULE)
    topic, one = _the_schedule(ctx)
    state, now_ms = ctx.node.engine.state, ctx.node.clock.now_ms()
    check_room(state, ctx.node.free_bytes())
    return await _changed(ctx, topic, patch_schedule(state, topic, one, members, now_ms, body=body))


async def delete_schedule(ctx: Context) -> Answer:
    """DELETE …/schedules/{s}."""
    topic, one = _the_schedule(ctx)
    state, now_ms = ctx.node.engine.state, ctx.node.clock.now_ms()
    drop_schedule(state, recall_ahead(state, topic, one, now_ms), now_ms)
    return await ctx.durable_answer({"result": "done"})


async def pause_schedule_(ctx: Context) -> Answer:
    """POST …/schedules/{s}/pause."""
    note = ((await ctx.values())["note"] or b"").decode()
    topic, one = _the_schedule(ctx)
    state, now_ms = ctx.node.engine.state, ctx.node.clock.now_ms()
    one = pause_schedule(state, recall_ahead(state, topic, one, now_ms), note, now_ms)
    return await _changed(ctx, topic, one)


async def resume_schedule_(ctx: Context) -> Answer:
    """POST …/schedules/{s}/resume."""
    await ctx.values()
    topic, one = _the_schedule(ctx)
    one = resume_schedule(ctx.node.engine.state, one, ctx.node.clock.now_ms())
    return await _changed(ctx, topic, one)


async def run_schedule(ctx: Context) -> Answer:
    """POST …/schedules/{s}/run."""
    await ctx.values()
    topic, one = _the_schedule(ctx)
    state, now_ms = ctx.node.engine.state, ctx.node.clock.now_ms()
    check_room(state, ctx.node.free_bytes())
    # A refused run takes nothing from the limit.
    instant_by_hand(one, now_ms)
    ctx.caller.take_messages(1, now_ms)
    message_id = run_now(state, one, now_ms)
    ctx.count = 1
    fired = {"id": message_id, "n": one.progress.n + 1}
    return await ctx.durable_answer({**_place(topic, one), **fired})


async def backfill_schedule(ctx: Context) -> Answer:
    """POST …/schedules/{s}/backfill."""
    values = await ctx.values()
    topic, one = _the_schedule(ctx)
    node = ctx.node
    state, now_ms = node.engine.state, node.clock.now_ms()
    check_room(state, node.free_bytes())
    until_ms = now_ms if values["until_ms"] is None else values["until_ms"]
    firings, next_from_ms = plan_backfill(
        state,
        one,
        from_ms=values["from_ms"],
        until_ms=until_ms,
        rate=values["rate"],
        now_ms=now_ms,
    )
    limit = ctx.caller.messages
    if limit is not None and len(firings) > limit.per_s:
        # As many as the caller may send at once; the next call goes on.
        next_from_ms = firings[limit.per_s].instant_ms
        del firings[limit.per_s :]
    ctx.caller.take_messages(len(firings), now_ms)
    for _ in send_backfill(state, firings, now_ms):
        await node.pause()
    ctx.count = len(firings)
    last_due_ms = firings[-1].due_ms if firings else None
    answer = {"instants": len(firings), "next_from_ms": next_from_ms, "last_due_ms": last_due_ms}
    return await ctx.durable_answer({**_place(topic, one), **answer})


async def preview_schedule(ctx: Context) -> Answer:
    """GET …/schedules/{s}/preview."""
    values = ctx.query_values()
    topic, one = _the_schedule(ctx)
    instants = Instants(values["n"], values["from_ms"] or None, values["until_ms"])
    return await _preview(ctx, topic, one, instants)


async def try_schedule(ctx: Context) -> Answer:
    """POST …/schedules/{s}/preview: as if it were put now; nothing is stored.

    A topic that does not exist reads as a blank one. Jitter depends on the topic's number, so the
    due times of such a preview are an example.
    """
    count = ctx.query_values()["n"]
    given, _ = await _given(ctx, TRY_SCHEDULE)
    members, converted = with_converted(given)
    state, now_ms, name = ctx.node.engine.state, ctx.node.clock.now_ms(), ctx.params["schedule"]
    NAME.check(name)
    spec = spec_of(state, name, anchored(members, now_ms), b"", PACKAGED)
    topic = state.topics.get(ctx.topic_key) or state.blank_topic(*ctx.topic_key)
    one = Schedule(0, topic.number, name, spec, None)
    next_instant(spec.timing, now_ms - 1, bounded=True)
    begin_after(one, one.progress, now_ms - 1, PACKAGED)
    return await _preview(ctx, topic, one, Instants(count), converted)


def _the_schedule(ctx: Context) -> tuple[Topic, Schedule]:
    """The topic and the schedule of the path, or 404."""
    topic = the_topic(ctx)
    return topic, the_schedule(ctx.node.engine.state, topic, ctx.params["schedule"])


async def _given(
    ctx: Context, shape: Shape, *, body_needed: bool = False
) -> tuple[dict[str, Any], bytes | None]:
    """(members that the engine checks, the body of the message)."""
    raw = shape.check(await ctx.members(JSON_VALUES_MAX))
    members = {name: value for name, value in raw.items() if name not in _BODIES}
    if ctx.node.clock.now_ms() >= UNIX_MS_MIN:
        check_times(members)
    body = None
    if body_needed or any(name in raw for name in _BODIES):
        body = take_body(raw)
    ctx.note({name: value for name, value in members.items() if name != "headers"})
    interval_ms = members.get("interval_ms")
    if isinstance(interval_ms, int) and interval_ms > 0 and shape is not TRY_SCHEDULE:
        # Instants of the other forms are seconds: no limit is below one message a second.
        ctx.caller.check_interval(interval_ms)
    return members, body


async def _changed(ctx: Context, topic: Topic, one: Schedule, status: int = 200) -> Answer:
    return await ctx.durable_answer(_describe(ctx, topic, one), status=status)


def _place(topic: Topic, one: Schedule) -> dict[str, Any]:
    return {"topic": topic.name, "namespace": topic.namespace, "schedule": one.name}


def _describe(ctx: Context, topic: Topic, one: Schedule) -> dict[str, Any]:
    """The members of a schedule in an answer."""
    timing, progress = one.spec.timing, one.progress
    state = "paused" if one.paused else "running" if progress.next_ms else "ended"
    runs = state == "running"
    return {
        **_place(topic, one),
        "state": state,
        "note": one.note,
        **{member.name: getattr(timing, member.name) for member in TIMING_MEMBERS},
        **one.spec.rules.as_dict(),
        **_message(ctx, topic, one),
        "explain": explain(timing),
        "next_ms": progress.next_ms if runs else None,
        "due_ms": progress.due_ms if runs else None,
        "n": progress.n,
        "fired_ms": progress.fired_ms or None,
        "buffered_ms": progress.buffered_ms or None,
        "skipped": progress.skipped,
    }


def _message(ctx: Context, topic: Topic, one: Schedule) -> dict[str, Any]:
    """What the caller may see of the messages of a schedule."""
    body, fields = unpack_message(one.spec.message)
    shown: Mapping[str, Any] = {field.name: fields.get(field.name) for field in MESSAGE_FIELDS}
    if ctx.caller.may("bodies", (topic.namespace, topic.name)):
        return {**shown, **body_members(body, packed=ctx.form.packed)}
    return {**shown, "headers": None}


async def _preview(
    ctx: Context,
    topic: Topic,
    one: Schedule,
    instants: Instants,
    converted: Mapping[str, Any] | None = None,
) -> Answer:
    timing, firings = one.spec.timing, []
    for each in previewed(one, instants, ctx.node.clock.now_ms()):
        firings.append(
            {
                "instant_ms": each.instant_ms,
                "due_ms": each.due_ms,
                "local": each.local.text,
                "change": each.local.mark or None,
            }
        )
        # Looking for a rare instant takes a millisecond.
        await ctx.node.pause()
    return ctx.answer(
        {
            **_place(topic, one),
            "zone": timing.zone,
            "explain": explain(timing),
            "converted": converted,
            "firings": firings,
        }
    )
