"""Handlers of control: get, cancel, reschedule and replay messages, one or many, and of their jobs.

Many messages are named by ids or by a filter. Ids come as a list or as a bulk body, and the answer
has a result for each; a filter creates a job. Jobs are listed, show their progress, and are
stopped.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgpack
import numpy as np

from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.context import BULK, Context
from delaylog.broker.calls.forms.deliveries import own_members
from delaylog.broker.calls.forms.descriptions import describe, failures_of, trace_members, traces_of
from delaylog.broker.calls.places import failed_filter, named_in, permit_group, seen_by, the_topic
from delaylog.broker.calls.shapes import check_columns, check_count, named_group
from delaylog.broker.calls.turn.writes import Change, change
from delaylog.broker.engine import changes
from delaylog.broker.engine.changes import ControlResult, GroupedResult
from delaylog.broker.engine.jobs.job_table import Job, JobSpec
from delaylog.broker.engine.jobs.jobs import MatchCount, begin_job, end_job
from delaylog.broker.engine.lookup.find_messages import find_ids, find_origins, find_texts
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.model import FoundMessage, Topic
from delaylog.broker.engine.send.due_times import check_delays
from delaylog.broker.engine.send.sends import all_utf8
from delaylog.broker.engine.topics.groups import DEFAULT_NAME, Group
from delaylog.contract.calls.call import Right
from delaylog.contract.calls.shapes import JSON_VALUES_MAX
from delaylog.contract.message_fields import made_id
from delaylog.contract.times import TIME_MS_MAX
from delaylog.storage.columns import every
from delaylog.storage.layout import HOUR_SHIFT, Int64Array, MessageState
from delaylog.storage.messages.batch import BATCH_VERSION, TextColumn, take_column, unpack_map
from delaylog.storage.messages.records import split_record

# ----------------------------------------------------------------------------- a single message


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
    allowed = ctx.caller.may("bodies", ctx.topic_key, group.name)
    if values["body"] and allowed:
        members |= own_members(record, packed=ctx.form.packed)
    members |= failures_of(state, topic, group, [found], with_reasons=allowed)[0]
    await ctx.node.durable(state.position)
    if values["life"]:
        traces = await traces_of(ctx, topic, group, [found])
        members |= trace_members(state, topic, group, traces, name="life", with_reasons=allowed)[0]
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
    if result.codes[0] == changes.TOO_LATE:
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


# ----------------------------------------------------------------------------------------- jobs

_NAME: Final = re.compile(r"j([1-9][0-9]{0,17})\Z")


def job_members(ctx: Context, job: Job) -> dict[str, Any]:
    """The members of a job in an answer; without the right `bodies`, without a failure's reason."""
    topic = ctx.node.engine.state.by_number.get(job.topic)
    members = job.filter.members()
    key = None if topic is None else (topic.namespace, topic.name)
    if key is None or not ctx.caller.may("bodies", key, job.filter.group):
        members.pop("reason", None)
        members.pop("reason_prefix", None)
    return {
        "job": f"j{job.number}",
        "namespace": None if topic is None else topic.namespace,
        "topic": None if topic is None else topic.name,
        "action": job.action,
        "filter": members,
        "rate": job.rate,
        "deliver_at_ms": job.deliver_at_ms,
        "state": job.state,
        "scanned": job.scanned,
        "matched": job.matched,
        "done": job.done,
        "too_late": job.too_late,
        "begun_ms": job.begun_ms,
        "ended_ms": job.ended_ms or None,
    }


def _may(ctx: Context, job: Job, right: Right) -> bool:
    """Whether the caller has a right on the topic of a job."""
    topic = ctx.node.engine.state.by_number.get(job.topic)
    if topic is None:
        return ctx.caller.permissions.may_everywhere(right)
    return ctx.caller.may(right, (topic.namespace, topic.name))


def _the_job(ctx: Context, right: Right) -> Job:
    """The job of the path, or 404, also if the caller has no such right on its topic."""
    name = ctx.params["job"]
    found = _NAME.match(name)
    job = ctx.node.engine.state.jobs.by_number.get(int(found[1])) if found else None
    if job is None or not _may(ctx, job, right):
        raise Problem("unknown", f"there is no job {name[:64]!r}")
    return job


async def list_jobs(ctx: Context) -> Answer:
    """GET /v1/jobs: the newest first."""
    state = ctx.node.engine.state
    members = [
        job_members(ctx, job)
        for job in reversed(state.jobs.by_number.values())
        if _may(ctx, job, "read")
    ]
    return await ctx.durable_answer({"jobs": members})


async def get_job(ctx: Context) -> Answer:
    """GET /v1/jobs/{job}."""
    return await ctx.durable_answer(job_members(ctx, _the_job(ctx, "read")))


async def stop_job(ctx: Context) -> Answer:
    """DELETE /v1/jobs/{job}: stop a job; messages that it changed stay changed."""
    state = ctx.node.engine.state
    job = _the_job(ctx, "change")
    end_job(state, job, "cancelled", ctx.node.clock.now_ms())
    return await ctx.durable_answer(job_members(ctx, job))


# -------------------------------------------------------------------------------- many messages

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
    if ctx.form.kind == BULK:
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
