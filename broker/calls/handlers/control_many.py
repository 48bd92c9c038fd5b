"""Handlers of control over many messages: cancel, reschedule and replay, by ids or by a filter.

Ids come as a list or as a bulk body, and the answer has a result for each; a filter creates a job.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import msgpack
import numpy as np

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import BULK, Context
from delaylog.broker.calls.handlers.control import take_due
from delaylog.broker.calls.handlers.jobs import job_members
from delaylog.broker.calls.named_groups import named_in
from delaylog.broker.calls.places import failed_filter, permit_group, the_topic
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.shapes import check_columns, check_count, named_group
from delaylog.broker.calls.turn.writes import Change, change
from delaylog.broker.engine.control import changes
from delaylog.broker.engine.control.changes import ControlResult, GroupedResult
from delaylog.broker.engine.jobs.job_table import JobSpec
from delaylog.broker.engine.jobs.jobs import MatchCount, begin_job
from delaylog.broker.engine.lookup.find_messages import find_ids, find_origins, find_texts
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.send.due_times import check_delays
from delaylog.broker.engine.send.sending import all_utf8
from delaylog.broker.engine.topics.groups import Group
from delaylog.contract.calls.shapes import JSON_VALUES_MAX
from delaylog.contract.times import TIME_MS_MAX
from delaylog.storage.columns.questions import every
from delaylog.storage.layout import HOUR_SHIFT, Int64Array, MessageState
from delaylog.storage.messages.batch import BATCH_VERSION, TextColumn, take_column, unpack_map

CONTROL_NAMES: Final = ("done", "too_late", "unknown")
_FAR_ROWS_MAX: Final = 2_500
"""Messages in far hours that a bulk call may change in one turn."""
_PART_ROWS: Final = 1_000
"""Far messages of a bulk call that are changed in its first turn."""
_PART_ROWS_MIN: Final = 500
_PART_SECONDS: Final = 0.010
"""Target duration of each later turn of a bulk call."""
_COLUMNS: Final = frozenset({"v", "n", "refs", "id", "id_size", "deliver_at_ms", "delay_ms"})


async def control_many(ctx: Context) -> Answer:
    """POST …/messages:cancel, :reschedule and :replay."""
    if ctx.content_type == BULK:
        return await _bulk(ctx)
    action = ctx.params["action"]
    values = await ctx.values(JSON_VALUES_MAX)
    due, force = None, False
    if action == "cancel":
        force = values["force"]
    else:
        due = take_due(ctx, values)
    ids, filtered, rate = values["ids"], values["filter"], values["rate"]
    if (ids is None) == (filtered is None):
        raise Problem("bad_request", "give ids, or a filter", field="ids")
    _check_time(action, due)
    if filtered is not None:
        wanted = _filter(ctx, filtered)
        named = filtered.get("state") is not None
        _check_filter(action, wanted, named=named, force=force)
        return await _begin(ctx, JobSpec(action, wanted, rate, due, force))
    if rate is not None:
        raise Problem("bad_request", "a rate requires a filter", field="rate")
    await ctx.node.room_for_changes()
    topic, now_ms = the_topic(ctx), ctx.node.clock.now_ms()
    ctx.count = len(ids)
    state = ctx.node.engine.state
    grouped = change(
        ctx.node,
        topic,
        lambda group: find_ids(state, topic, ids, now_ms, group),
        Change(action, due, force=force),
    )
    await ctx.node.durable(grouped.result.position)
    return ctx.answer({"results": _named(grouped)})


def _check_time(action: str, due: Int64Array | int | None) -> None:
    if action == "reschedule" and due is None:
        raise Problem("bad_request", "deliver_at_ms is missing", field="deliver_at_ms")


def _named(grouped: GroupedResult) -> list[dict[str, Any]]:
    """Results by name; a result `too_late` has the state that was found."""
    out = []
    result = grouped.result
    kinds = result.found.states.tolist()
    for at, (code, kind) in enumerate(zip(result.codes.tolist(), kinds, strict=True)):
        entry: dict[str, Any] = {"result": CONTROL_NAMES[code]}
        if late := grouped.late_for(at):
            entry["groups"] = late
        if code == changes.TOO_LATE:
            entry["state"] = MessageState(kind).name.lower()
        out.append(entry)
    return out


# --------------------------------------------------------------------------- by filter


def _check_filter(action: str, wanted: MessageFilter, *, named: bool, force: bool) -> None:
    """Raise Problem if the action is not for messages of the state; `named` = in the request."""
    state, why = wanted.state, ""
    if state is None:
        return
    if not named:
        why = ", and a filter with cause or reason means those unless it names a state"
    dead = state is MessageState.DEAD
    letters = action == "cancel" and dead
    if letters and not force:
        detail = f"cancelling dead messages removes them from the dead letters: it needs force{why}"
        raise Problem("bad_request", detail, field="state")
    if not letters and dead != (action == "replay"):
        detail = f"{action} is not for {state.name.lower()} messages{why}"
        raise Problem("bad_request", detail, field="state")


def _filter(ctx: Context, members: dict[str, Any]) -> MessageFilter:
    """The filter of a job or a count, if its caller may see what it names.

    What failed for a reason is asked for to deal with dead letters: they are meant without a state.
    """
    word, group = members.get("state"), members.get("group")
    name = None if group is None else named_in(the_topic(ctx), named_group(group)).name
    failed = failed_filter(ctx, members, name)
    if word is None and failed.names_failure:
        word = "dead"
    return replace(
        failed,
        states=None if word is None else frozenset([MessageState[word.upper()]]),
        due_from_ms=members.get("due_from"),
        due_to_ms=members.get("due_to"),
        tag=members.get("tag"),
        key=members.get("key"),
        group=name,
    )


async def count_messages(ctx: Context) -> Answer:
    """GET …/messages:count: a piece of the number of messages that a job would match."""
    values, node = ctx.query_values(), ctx.node
    group = values["group"]
    permit_group(ctx, None if group is None else named_group(group))
    cursor, due_to = values["cursor"], values["due_to"]
    wanted = _filter(ctx, {**values, "due_to": None if due_to == TIME_MS_MAX else due_to})
    topic, now_ms = the_topic(ctx), node.clock.now_ms()
    after = None if cursor is None else cursor.decode()
    counted = MatchCount(node.engine.state, topic, wanted, now_ms=now_ms, cursor=after)
    await node.run(counted.work(node.machine.steady_s))
    return await ctx.durable_answer(
        {"matched": counted.matched, "scanned": counted.scanned, "cursor": counted.cursor}
    )


async def _begin(ctx: Context, order: JobSpec) -> Answer:
    node = ctx.node
    state, topic = node.engine.state, the_topic(ctx)
    job = begin_job(state, topic, order, node.clock.now_ms())
    members = job_members(ctx, job)
    ctx.facts = {**ctx.facts, "job": members["job"]}
    await node.durable(state.position)
    node.kick_jobs()
    return ctx.answer(members, status=202)


# --------------------------------------------------------------------------- in bulk


async def _bulk(ctx: Context) -> Answer:
    """A bulk call: refs or a text column of ids, and times; answered with a column of results."""
    action, node = ctx.params["action"], ctx.node
    fields = unpack_map(await ctx.body())
    check_columns(fields, _COLUMNS)
    refs, ids, n = _which(fields, node.engine.limits.bulk_rows_max)
    due = _due(ctx, fields, n)
    _check_time(action, due)
    await node.room_for_changes()
    ctx.count = n
    rows, order = n, np.arange(n)
    if refs is not None and _many_are_far(ctx, refs):
        # Sort the refs, since messages of one hour are stored together. If a ref occurs twice, one
        # turn changes all of them, so that both occurrences get their results from one look-up.
        order = np.argsort(refs, kind="stable")
        refs = refs[order]
        due = due[order] if isinstance(due, np.ndarray) else due
        rows = _PART_ROWS if every(refs[1:] != refs[:-1]) else n
    codes, position, first = np.zeros(n, np.uint8), 0, 0
    now = node.machine.steady_s
    while first < n:
        begun, part = now(), slice(first, first + rows)
        mine = due[part] if isinstance(due, np.ndarray) else due
        result = _change(ctx, action, ids if refs is None else refs[part], n, mine)
        codes[order[part]] = result.codes
        position, first = max(position, result.position), first + rows
        if first < n:
            rows = max(_PART_ROWS_MIN, int(rows * _PART_SECONDS / (now() - begun)))
            await asyncio.sleep(0)
            await node.room_for_changes()
    await node.durable(position)
    return ctx.bulk_answer(msgpack.packb({"v": BATCH_VERSION, "n": n, "result": codes.tobytes()}))


def _change(
    ctx: Context,
    action: str,
    which: Int64Array | TextColumn,
    n: int,
    due: Int64Array | int | None,
) -> ControlResult:
    """Change some messages in one turn: those with these refs, or with these `n` ids."""
    topic, now_ms, state = the_topic(ctx), ctx.node.clock.now_ms(), ctx.node.engine.state

    def find(group: Group) -> FoundMessages:
        if isinstance(which, TextColumn):
            return find_texts(state, topic, which, n, now_ms, group)
        return find_origins(state, which, topic, now_ms, group)

    return change(ctx.node, topic, find, Change(action, due)).result


def _many_are_far(ctx: Context, refs: Int64Array) -> bool:
    """Whether the messages in far hours would block the loop for long: each takes 10 to 50 us."""
    far = ctx.node.engine.state.hours.counts.far_mask(refs >> HOUR_SHIFT)
    return int(np.count_nonzero(far)) > _FAR_ROWS_MAX


def _which(fields: dict[str, Any], rows_max: int) -> tuple[Int64Array | None, TextColumn, int]:
    """(origin refs or None, ids, number of either)."""
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
        return origins, TextColumn(), len(origins)
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
    if not all_utf8(column, n):
        raise Problem("bad_request", "ids must be UTF-8", field="id")
    return None, column, n


def _due(ctx: Context, fields: dict[str, Any], n: int) -> Int64Array | int | None:
    """The new due times, None if neither times nor delays are given."""
    due = take_column(fields, "deliver_at_ms", np.dtype("<i8"), n)
    delay = take_column(fields, "delay_ms", np.dtype("<i8"), n)
    if delay is None:
        return due
    if due is not None:
        raise Problem("bad_request", "give deliver_at_ms or delay_ms, not both", field="delay_ms")
    check_delays(delay, ctx.node.engine.limits.horizon_ms)
    return ctx.node.clock.now_ms() + np.maximum(delay, 0)
