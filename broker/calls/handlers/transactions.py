"""Handlers of transactions: begin, stage parts, commit, abort, read.

Calls are idempotent: a repeated part, commit or abort changes nothing and is answered with
`already`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import numpy as np

from delaylog.broker.calls.access.caller import ANYONE
from delaylog.broker.calls.answers import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.forms.bulk_bodies import read_batch, read_topics
from delaylog.broker.calls.handlers.messages import take_acks
from delaylog.broker.engine.errors import ConflictError, GoneError
from delaylog.broker.engine.send.sends import check_batch
from delaylog.broker.engine.transactions import commands
from delaylog.broker.engine.transactions.commands import Known, PartName, Winner, state_of
from delaylog.broker.engine.transactions.table import OpenTransaction, Unpublished, by_topic
from delaylog.contract.calls.call import Right
from delaylog.contract.calls.shapes import STAGED_PARTS_MAX, WINNERS
from delaylog.replication.leader import Acks
from delaylog.storage.log.payloads import RESULTS, EndedTransaction
from delaylog.storage.messages.batch import BatchRanges, with_wire

WINNERS_A_SLICE: Final = 500
RUNS_A_SLICE: Final = 10
"""Parts of one body that are staged in a turn of the loop, some two milliseconds."""
WINNER_VALUES: Final = 8
"""Values that the body of a commit may have for each winner: twice the number that one has."""


async def _answer(ctx: Context, members: dict[str, Any], acks: Acks | None) -> Answer:
    """Answer once the log is safe up to its present end, which the answer reflects."""
    await ctx.node.role.safe(ctx.node.engine.state.position, acks)
    return ctx.answer(members)


@asynccontextmanager
async def _safe_refusals(ctx: Context, acks: Acks | None) -> AsyncIterator[None]:
    """Delay a refusal that reports the state of a transaction or a part until that state is safe.

    Otherwise a leader that fails could lose the state that its refusal has reported.
    """
    try:
        yield
    except (ConflictError, GoneError):
        await ctx.node.role.safe(ctx.node.engine.state.position, acks)
        raise


def _permit(ctx: Context, name: str) -> None:
    """Raise UnknownError if a transaction belongs to another principal.

    What has been committed or aborted cannot be changed, so it is only kept from callers without
    the right to read its topics, where these are still known.
    """
    table = ctx.node.engine.state.transactions
    known: Known | None = table.open.get(name) or table.publishing(name)
    if known is not None and not _is_theirs(ctx, known, "send"):
        raise commands.no_transaction(name)


def _check_topics(ctx: Context, name: str) -> None:
    """Raise a Problem unless the caller may still send to all topics of an open transaction: its
    grants may have changed since it staged the parts.
    """
    state = ctx.node.engine.state
    known = state.transactions.open.get(name)
    if known is None or ctx.caller is ANYONE:
        return
    for number in np.unique(known.parts.columns["topic"]).tolist():
        topic = state.by_number.get(number)
        if topic is not None:
            ctx.caller.check("send", (topic.namespace, topic.name))


def _is_theirs(ctx: Context, known: Known, right: Right) -> bool:
    """Whether the caller has begun a transaction, or has a right on all its topics."""
    caller, state = ctx.caller, ctx.node.engine.state
    if caller.permissions.may_everywhere(right):
        return True
    if isinstance(known, OpenTransaction):
        return known.owner == caller.name
    if isinstance(known, EndedTransaction):
        return False
    topics = [state.by_number.get(number) for number, _, _ in by_topic(known.parts)]
    return all(
        topic is None or caller.may(right, (topic.namespace, topic.name)) for topic in topics
    )


async def begin_transaction(ctx: Context) -> Answer:
    """POST /v1/transactions: begin a transaction; a repeat with its id extends its time."""
    node, values = ctx.node, await ctx.values()
    raw, state = values["transaction"], node.engine.state
    name = None if raw is None else raw.decode()
    if name is not None:
        _permit(ctx, name)
    owner = "" if ctx.caller is ANYONE else ctx.caller.name
    name = commands.begin(state, name, values["ttl_ms"], node.clock.now_ms(), owner)
    known = commands.find_transaction(state, name)
    expires_ms = known.expires_ms if isinstance(known, OpenTransaction) else None
    answer = {"transaction": name, "state": state_of(known), "expires_at_ms": expires_ms}
    return await _answer(ctx, answer, take_acks(values))


async def stage_part(ctx: Context) -> Answer:
    """POST …/parts: stage the batch of the body; a repeat is answered with `already`."""
    name, node, values = ctx.params["transaction"], ctx.node, ctx.query_values()
    namespace = (values["ns"] or b"default").decode()
    producer = (values["producer"] or b"").decode()
    part = PartName(producer, values["part"], values["attempt"], values["number"])
    acks = take_acks(values)
    if values["topic"] is None:
        return await _stage_topics(ctx, namespace, part, acks)
    key = (namespace, values["topic"].decode())
    ctx.caller.check("send", key)
    _permit(ctx, name)
    batch = await read_batch(ctx)
    content = commands.Content(key, batch)
    state = node.engine.state
    now_ms = node.clock.now_ms()
    ctx.take_messages(batch.n, now_ms)
    free_bytes = node.free_bytes()
    async with _safe_refusals(ctx, acks):
        staged = commands.stage(state, name, part, content, now_ms, free_bytes=free_bytes)
    answer = {"rows": batch.n, "result": "staged" if staged else "already"}
    return await _answer(ctx, answer, acks)


async def _stage_topics(ctx: Context, namespace: str, part: PartName, acks: Acks | None) -> Answer:
    """Stage a body with a column `topic`: each run of rows of one topic is a part, numbered on.

    All rows are checked before one is staged, so that a refusal of a row has staged nothing. A
    quota or a full disk may leave parts.
    """
    name, node = ctx.params["transaction"], ctx.node
    _permit(ctx, name)
    batch, runs = await read_topics(ctx)
    commands.check_numbers(part, len(runs))
    for topic in {topic for topic, _ in runs}:
        ctx.caller.check("send", (namespace, topic))
    state, now_ms = node.engine.state, node.clock.now_ms()
    check_batch(state, batch, now_ms)
    ctx.take_messages(batch.n, now_ms)
    free_bytes = node.free_bytes()
    ranges, first, staged = BatchRanges(batch), 0, False
    async with _safe_refusals(ctx, acks):
        for index, (topic, n) in enumerate(runs):
            if index % RUNS_A_SLICE == RUNS_A_SLICE - 1:
                # Staging thousands of parts at once would block the loop for a second.
                await asyncio.sleep(0)
                node.role.check()
                now_ms, free_bytes = node.clock.now_ms(), node.free_bytes()
            rows = with_wire(ranges.take(first, first + n))
            numbered = part._replace(number=part.number + index)
            content = commands.Content((namespace, topic), rows)
            done = commands.stage(state, name, numbered, content, now_ms, free_bytes=free_bytes)
            staged, first = staged or done, first + n
    answer = {"rows": batch.n, "result": "staged" if staged else "already"}
    return await _answer(ctx, answer, acks)


async def commit_transaction(ctx: Context) -> Answer:
    """POST …/commit: send the rows of these attempts, atomically."""
    name, node = ctx.params["transaction"], ctx.node
    limits = node.engine.limits
    values = await ctx.values(WINNER_VALUES * STAGED_PARTS_MAX)
    acks = take_acks(values)
    winners = []
    for item, winner in enumerate(values["winners"]):
        if item % WINNERS_A_SLICE == WINNERS_A_SLICE - 1:
            # Checking ten thousand winners at once would block the loop for some 15 ms.
            await asyncio.sleep(0)
        taken = WINNERS.shape.take(winner, limits, item)
        producer = taken["producer"]
        named = None if producer is None else producer.decode()
        winners.append(Winner(named, taken["part"], taken["attempt"], taken["rows"]))
    # Another node may have become the leader while the winners were checked.
    node.role.check()
    _permit(ctx, name)
    _check_topics(ctx, name)
    state, now_ms, free_bytes = node.engine.state, node.clock.now_ms(), node.free_bytes()
    async with _safe_refusals(ctx, acks):
        done = commands.commit(state, name, winners, now_ms, free_bytes=free_bytes)
    known = commands.find_transaction(state, name)
    assert not isinstance(known, OpenTransaction), "it is decided"
    node.kick_publish()
    answer = {
        "transaction": name,
        "state": "committed",
        "rows": known.rows,
        "result": "done" if done else "already",
    }
    return await _answer(ctx, answer, acks)


async def abort_transaction(ctx: Context) -> Answer:
    """POST …/abort: discard the staged parts."""
    name, node = ctx.params["transaction"], ctx.node
    acks = take_acks(await ctx.values())
    _permit(ctx, name)
    state = node.engine.state
    async with _safe_refusals(ctx, acks):
        done = commands.abort(state, name, node.clock.now_ms())
    word = state_of(commands.find_transaction(state, name))
    answer = {"transaction": name, "state": word, "result": "done" if done else "already"}
    return await _answer(ctx, answer, acks)


async def get_transaction(ctx: Context) -> Answer:
    """GET /v1/transactions/{transaction}."""
    name, state = ctx.params["transaction"], ctx.node.engine.state
    _permit(ctx, name)
    return await ctx.durable_answer(_members(name, commands.find_transaction(state, name)))


async def list_transactions(ctx: Context) -> Answer:
    """GET /v1/transactions: open ones, committed ones being published, the newest ended ones."""
    limit = ctx.query_values()["limit"]
    state = ctx.node.engine.state
    table = state.transactions
    found: list[tuple[str, Known]] = [(one.id, one) for one in table.open.values()]
    found += [(one.id, one) for one in table.unpublished.values()]
    found += table.newest_ended(max(limit - len(found), 0))
    found = [(name, known) for name, known in found if _is_theirs(ctx, known, "read")]
    members = [_members(name, known) for name, known in found[:limit]]
    counts = {
        "open": len(table.open),
        "publishing": len(table.unpublished),
        "ended": table.ended_count,
    }
    return await ctx.durable_answer({"transactions": members, "counts": counts})


def _members(name: str, known: Known) -> dict[str, Any]:
    """The members of a transaction in an answer."""
    counts: Any = (0,) * len(RESULTS)
    published = discarded = 0
    expires_ms = decided_ms = None
    if isinstance(known, OpenTransaction):
        expires_ms, size = known.expires_ms, known.bytes
    else:
        discarded, decided_ms, counts = known.discarded_rows, known.decided_ms, known.counts
        if isinstance(known, Unpublished):
            published, size = known.published, known.bytes
        else:
            published, size = sum(counts), known.size
    parts = known.parts if isinstance(known.parts, int) else len(known.parts)
    return {
        "transaction": name,
        "state": state_of(known),
        "rows": known.rows,
        "parts": parts,
        "bytes": size,
        "published": published,
        "results": dict(zip(RESULTS, counts, strict=True)),
        "discarded_rows": discarded,
        "expires_at_ms": expires_ms,
        "decided_at_ms": decided_ms,
    }
