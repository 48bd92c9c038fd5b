"""Handlers of single messages and bulk control: get, cancel, reschedule."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import msgpack
import numpy as np
from aiohttp import web

from delaylog.broker.engine import control
from delaylog.broker.engine.control import ControlResult
from delaylog.broker.engine.finding import find_ids
from delaylog.broker.engine.life import Lives
from delaylog.broker.engine.model import Found, Topic
from delaylog.broker.web.context import BULK, Context
from delaylog.broker.web.deliveries import body_members, split_record
from delaylog.broker.web.describing import describe, life_members
from delaylog.broker.web.problems import Problem
from delaylog.broker.web.shapes import (
    CANCEL_FORCE,
    CANCEL_FORCE_QUERY,
    CANCEL_MANY,
    CONTROL_IDS,
    DELIVER_AT_MS,
    LIFE,
    NEW_DELAY_MS,
    PRIORITY,
    READ,
    RESCHEDULE,
    RESCHEDULE_MANY,
    check_columns,
    check_count,
)
from delaylog.storage.batch import BATCH_VERSION, Column, TextColumn, take_column, unpack_map
from delaylog.storage.layout import Int64Array

CONTROL_NAMES: Final = ("done", "too_late", "unknown")
_CONTROL_COLUMNS: Final = frozenset({"v", "n", "refs", "id", "id_size", "deliver_at_ms"})


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
    values = ctx.query(READ, LIFE)
    READ.take(values)
    state = ctx.node.engine.state
    topic, found = _find_one(ctx)
    refs = np.array([found.ref], np.int64)
    rows = np.array([found.row])
    text, key, tags, headers, body = split_record(state.hours.records(refs, rows), rows[0])
    row, entry, shown = found.row, found.entry, found.state
    members: dict[str, Any] = {
        "topic": topic.name,
        "namespace": topic.namespace,
        **describe(state, found.ref, row, entry, shown, id=text, key=key, tags=tags),
        "headers": headers,
        **body_members(body, packed=ctx.packed),
    }
    await ctx.node.durable(state.log.end_position)
    if LIFE.take(values):
        now_ms = ctx.node.clock.now_ms()
        lives = Lives(state, topic, [found], now_ms=now_ms, clock=perf_counter)
        await ctx.node.run(lives.work())
        members |= life_members(lives.lives[0], "life")
    return ctx.answer(members)


async def _one_result(ctx: Context, result: ControlResult) -> web.StreamResponse:
    found = result.found[0]
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
            "deliver_at_ms": result.deliver_at_ms[0],
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
        [found],
        node.clock.now_ms(),
        force=force,
    )
    return await _one_result(ctx, result)


async def reschedule_message(ctx: Context) -> web.StreamResponse:
    """PATCH …/messages/{id}."""
    members = RESCHEDULE.check(await ctx.members())
    due, priority = _take_due(ctx, members), PRIORITY.take(members, ctx.node.engine.limits)
    if due is None and priority is None:
        raise Problem(
            "bad_request", "give deliver_at_ms, delay_ms or priority", field="deliver_at_ms"
        )
    topic, found = _find_one(ctx)
    node = ctx.node
    result = control.reschedule(
        node.engine.state,
        topic,
        [found],
        node.clock.now_ms(),
        deliver_at_ms=due,
        priority=priority,
    )
    return await _one_result(ctx, result)


def _take_due(ctx: Context, members: dict[str, Any]) -> int | None:
    """The new due time, None when neither it nor a delay is given."""
    limits = ctx.node.engine.limits
    due, delay = DELIVER_AT_MS.take(members, limits), NEW_DELAY_MS.take(members, limits)
    if due is not None and delay is not None:
        raise Problem("bad_request", "give deliver_at_ms or delay_ms, not both", field="delay_ms")
    return due if delay is None else ctx.node.clock.now_ms() + delay


async def control_many(ctx: Context) -> web.StreamResponse:
    """POST …/messages:cancel and :reschedule, by a list of ids or a bulk body."""
    action = ctx.params["action"]
    topic = the_topic(ctx)
    node = ctx.node
    due: Int64Array | int | None
    force = False
    if ctx.content_type == BULK:
        ids, origins, due = _bulk_control(await ctx.body(), node.engine.limits.bulk_rows_max)
    else:
        shape = CANCEL_MANY if action == "cancel" else RESCHEDULE_MANY
        members = shape.check(await ctx.members())
        due, force = _take_due(ctx, members), CANCEL_FORCE.take(members)
        ids, origins = CONTROL_IDS.take(members, node.engine.limits), None
        if ids is None:
            raise Problem("bad_request", "ids is missing", field="ids")
    if action == "reschedule" and due is None:
        raise Problem("bad_request", "deliver_at_ms is missing", field="deliver_at_ms")
    now_ms = node.clock.now_ms()
    found = control.find(node.engine.state, topic, ids, origins, now_ms)
    if action == "cancel":
        result = control.cancel(node.engine.state, topic, found, now_ms, force=force)
    else:
        result = control.reschedule(node.engine.state, topic, found, now_ms, deliver_at_ms=due)
    await node.durable(result.position)
    if ctx.content_type == BULK:
        answer = {
            "v": BATCH_VERSION,
            "n": len(result.codes),
            "result": np.array(result.codes, np.uint8).tobytes(),
        }
        return ctx.bulk_answer(msgpack.packb(answer))
    results = []
    for code, item in zip(result.codes, result.found, strict=True):
        entry: dict[str, Any] = {"result": CONTROL_NAMES[code]}
        if code == control.TOO_LATE and item is not None:
            entry["state"] = item.state.name.lower()
        results.append(entry)
    return ctx.answer({"results": results})


def _bulk_control(
    wire: bytes, rows_max: int
) -> tuple[list[str] | None, Int64Array | None, Int64Array | int | None]:
    """(ids, origin refs, due times) of a bulk cancel or reschedule."""
    fields = unpack_map(wire)
    check_columns(fields, _CONTROL_COLUMNS)
    refs = fields.get("refs")
    if refs is not None:
        if "id" in fields or "id_size" in fields:
            raise Problem("bad_request", "give refs or ids, not both", field="refs")
        if not isinstance(refs, bytes) or len(refs) % 8 or not 8 <= len(refs) <= 8 * rows_max:
            raise Problem(
                "bad_request", f"refs must be 1 to {rows_max} raw int64 values", field="refs"
            )
        origins = np.frombuffer(refs, "<i8")
        if int(origins.min()) < 0:
            raise Problem("bad_request", "refs are not negative", field="refs")
        check_count(fields, len(origins))
        return None, origins, _due(fields, len(origins))
    n = fields.get("n")
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= rows_max:
        raise Problem("bad_request", f"n must lie from 1 to {rows_max}", field="n")
    size = take_column(fields, "id_size", np.dtype("<u2"), n)
    block = fields.get("id")
    if size is None or not isinstance(block, bytes):
        raise Problem("bad_request", "give refs, or the text column id", field="id")
    column = TextColumn(size, block)
    if int(column.sizes(n).sum()) != len(block):
        raise Problem("bad_request", "the sizes in id_size do not add up", field="id_size")
    try:
        ids = [value.decode() for value in column.values(n)]
    except UnicodeDecodeError:
        raise Problem("bad_request", "ids must be UTF-8", field="id") from None
    return ids, None, _due(fields, n)


def _due(fields: dict[str, Any], n: int) -> Int64Array | int | None:
    due: Column | None = take_column(fields, "deliver_at_ms", np.dtype("<i8"), n)
    return due
