"""Handlers of transactions: begin, stage parts, commit, abort, look.

Every call may be repeated, and answers the same; one that has ended says so with its state.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.forms.bulk_bodies import read_batch
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.shapes import (
    ABORT,
    ACKS,
    ATTEMPT,
    COMMIT,
    LISTED_MAX,
    NAME_PATTERN,
    NUMBER,
    PART,
    PART_NAMESPACE,
    PART_TOPIC,
    PRODUCER,
    TRANSACTION,
    TRANSACTION_ID,
    TRANSACTION_ID_PATTERN,
    TRANSACTION_TTL_MS,
    WINNER_ATTEMPT,
    WINNER_PART,
    WINNER_ROWS,
    WINNERS,
)
from delaylog.broker.engine.errors import ConflictError, GoneError
from delaylog.broker.engine.transactions import deciding
from delaylog.broker.engine.transactions.deciding import Known, PartName, state_of
from delaylog.broker.engine.transactions.judging import Winner
from delaylog.broker.engine.transactions.table import OpenTransaction, Unpublished
from delaylog.replication.leader import Acks
from delaylog.storage.members import Values
from delaylog.storage.transaction_frames import RESULTS

WINNERS_A_SLICE: Final = 500
WINNER_VALUES: Final = 8
"""Values of one winner: twice what it has."""
_ID: Final = re.compile(f"{TRANSACTION_ID_PATTERN[1:-1]}\\Z")
_NAME: Final = re.compile(f"{NAME_PATTERN[1:-1]}\\Z")


def _acks(values: Values) -> Acks | None:
    """How safe it shall be; None = as the cluster file says."""
    said = ACKS.take(values)
    return None if said is None else Acks(said)


def _name(ctx: Context) -> str:
    """The transaction of the path."""
    name = ctx.params["transaction"]
    if not _ID.match(name):
        raise Problem(
            "bad_request", "a transaction's id is [A-Za-z0-9._:-]{1,200}", field="transaction"
        )
    return name


async def _answer(ctx: Context, members: dict[str, Any], acks: Acks | None) -> Answer:
    """Once the log end that the answer saw is safe."""
    await ctx.node.standing.safe(ctx.node.engine.state.position, acks)
    return ctx.answer(members)


@asynccontextmanager
async def _safe_refusals(ctx: Context, acks: Acks | None) -> AsyncIterator[None]:
    """A refusal that says how a transaction ended, or what was staged, waits as an answer does: a
    leader that falls may take with it what it saw.
    """
    try:
        yield
    except (ConflictError, GoneError):
        await ctx.node.standing.safe(ctx.node.engine.state.position, acks)
        raise


async def begin_transaction(ctx: Context) -> Answer:
    """POST /v1/transactions: begin one; the same id again gives it more time."""
    values = ctx.query(ACKS)
    members = TRANSACTION.check(await ctx.members())
    node = ctx.node
    raw = TRANSACTION_ID.take(members)
    name = None if raw is None else raw.decode()
    if name is not None and not _ID.match(name):
        raise Problem(
            "bad_request", "a transaction's id is [A-Za-z0-9._:-]{1,200}", field="transaction"
        )
    ttl_ms = TRANSACTION_TTL_MS.take(members, node.engine.limits)
    state = node.engine.state
    name = deciding.begin(state, name, ttl_ms, node.clock.now_ms())
    known = deciding.look(state, name)
    expires_ms = known.expires_ms if isinstance(known, OpenTransaction) else None
    answer = {"transaction": name, "state": state_of(known), "expires_at_ms": expires_ms}
    return await _answer(ctx, answer, _acks(values))


async def stage_part(ctx: Context) -> Answer:
    """POST …/parts: stage what the body holds; the same again is `already`."""
    values = ctx.query(PART_TOPIC, PART_NAMESPACE, PRODUCER, PART, ATTEMPT, NUMBER, ACKS)
    name, node = _name(ctx), ctx.node
    limits = node.engine.limits
    for member in (PART_TOPIC, PART):
        if member.name not in values:
            raise Problem("bad_request", f"{member.name} is missing", field=member.name)
    for member in (PART_TOPIC, PART_NAMESPACE):
        if member.name in values and not _NAME.match(values[member.name]):
            raise Problem(
                "bad_request", f"{member.name} is [A-Za-z0-9._-]{{1,200}}", field=member.name
            )
    place = (values.get(PART_NAMESPACE.name, "default"), values[PART_TOPIC.name])
    producer = (PRODUCER.take(values) or b"").decode()
    part = PartName(
        producer,
        PART.take(values, limits),
        ATTEMPT.take(values, limits),
        NUMBER.take(values, limits),
    )
    acks = _acks(values)
    batch = await read_batch(ctx)
    state = node.engine.state
    now_ms = node.clock.now_ms()
    free_bytes = node.free_bytes()
    async with _safe_refusals(ctx, acks):
        staged = deciding.stage(state, name, part, place, batch, now_ms, free_bytes=free_bytes)
    answer = {"rows": batch.n, "result": "staged" if staged else "already"}
    return await _answer(ctx, answer, acks)


async def commit_transaction(ctx: Context) -> Answer:
    """POST …/commit: these attempts are sent, and count at once."""
    acks = _acks(ctx.query(ACKS))
    name, node = _name(ctx), ctx.node
    limits = node.engine.limits
    members = COMMIT.check(await ctx.members(WINNER_VALUES * limits.staged_parts_max))
    named = WINNERS.take(members, limits)
    if named is None:
        raise Problem("bad_request", "winners is missing", field="winners")
    winners = []
    for item, winner in enumerate(named):
        if item % WINNERS_A_SLICE == WINNERS_A_SLICE - 1:
            # Ten thousand would hold the loop for some 15 ms.
            await asyncio.sleep(0)
        producer = PRODUCER.take(winner, limits, item)
        numbers = [
            member.take(winner, limits, item)
            for member in (WINNER_PART, WINNER_ATTEMPT, WINNER_ROWS)
        ]
        part, attempt, rows = numbers
        if part is None or attempt is None or rows is None:
            raise Problem(
                "bad_request", "a winner has part, attempt and rows", field="winners", item=item
            )
        winners.append(Winner(None if producer is None else producer.decode(), part, attempt, rows))
    # While they were looked through another one may have come to lead.
    node.standing.check()
    state, now_ms, free_bytes = node.engine.state, node.clock.now_ms(), node.free_bytes()
    async with _safe_refusals(ctx, acks):
        done = deciding.commit(state, name, winners, now_ms, free_bytes=free_bytes)
    known = deciding.look(state, name)
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
    """POST …/abort: what was staged is dropped."""
    acks = _acks(ctx.query(ACKS))
    name, node = _name(ctx), ctx.node
    ABORT.check(await ctx.members())
    state = node.engine.state
    async with _safe_refusals(ctx, acks):
        done = deciding.abort(state, name, node.clock.now_ms())
    word = state_of(deciding.look(state, name))
    answer = {"transaction": name, "state": word, "result": "done" if done else "already"}
    return await _answer(ctx, answer, acks)


async def get_transaction(ctx: Context) -> Answer:
    """GET /v1/transactions/{transaction}."""
    name, state = _name(ctx), ctx.node.engine.state
    members = _members(name, deciding.look(state, name))
    await ctx.node.durable(state.position)
    return ctx.answer(members)


async def list_transactions(ctx: Context) -> Answer:
    """GET /v1/transactions: open ones, those on their way, and the newest that ended."""
    limit = LISTED_MAX.take(ctx.query(LISTED_MAX), ctx.node.engine.limits)
    state = ctx.node.engine.state
    table = state.transactions
    found: list[tuple[str, Known]] = [(one.id, one) for one in table.open.values()]
    found += [(one.id, one) for one in table.unpublished.values()]
    found += table.newest_ended(max(limit - len(found), 0))
    members = [_members(name, known) for name, known in found[:limit]]
    counts = {
        "open": len(table.open),
        "publishing": len(table.unpublished),
        "ended": table.ended_count,
    }
    await ctx.node.durable(state.position)
    return ctx.answer({"transactions": members, "counts": counts})


def _members(name: str, known: Known) -> dict[str, Any]:
    """A transaction as it is shown."""
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
