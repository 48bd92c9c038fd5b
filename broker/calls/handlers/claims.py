"""Handlers of claims: a claim may be made and read repeatedly, and is settled once.

Every answer waits until the state that it shows is committed, so a claim that a client knows
survives the node. The work itself runs in slices between other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import numpy as np

from delaylog.broker.calls.answers import Answer, Problem, Stream
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.forms.arrow_stream import ARROW, END, batch_bytes, schema_bytes
from delaylog.broker.calls.forms.deliveries import COLUMNS, bulk_delivery, message_objects
from delaylog.broker.calls.places import group_of, named_in, seen_by, the_group, the_topic
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.turn.long_poll import begin_asking
from delaylog.broker.calls.turn.receives import GATE_SECONDS
from delaylog.broker.engine.deliver.claim_table import FORGOTTEN, Claim
from delaylog.broker.engine.deliver.claims import (
    SLICE_ROWS,
    ClaimRows,
    begin_claim,
    check_known,
    check_new_claim,
    check_open,
    claim_bytes,
    claim_rows,
    decide,
    expire_claims,
    extend_claim,
    find_claim,
    make_work,
    settle_work,
)
from delaylog.broker.engine.deliver.receives import RECEIVE_BYTES_MAX, ReceiveRequest
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.late.demand import EVERYTHING
from delaylog.broker.engine.model import Delivery, Topic
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.contract.calls.shapes import CLAIM_ROWS_MAX
from delaylog.contract.members import limit_note

BATCH_BYTES_MAX: Final = 8 << 20
"""Records of one record batch, after its first message."""
_SETTLING: Final = {"ack": "acking", "release": "releasing"}


def _describe(topic: Topic, claim: Claim) -> dict[str, Any]:
    group = topic.groups.get(claim.group)
    return {
        "claim": claim.name,
        "group": "" if group is None else group.name,
        "n": claim.count,
        "state": claim.state,
        "lease_until_ms": claim.deadline_ms if claim.living else None,
    }


def _the_claim(ctx: Context, values: dict[str, Any]) -> tuple[Topic, Claim]:
    """The claim of the path, also an ended one, or 404; marks its topic and group as used."""
    topic, group = seen_by(ctx, values)
    if ctx.node.role.leading:
        topic.used_ms = group.used_ms = ctx.node.clock.now_ms()
    name = ctx.params["claim"]
    claim = find_claim(ctx.node.engine.state, topic, group, name)
    if claim is None:
        raise Problem("unknown", f"group {group.name!r} has no claim {name!r}; make it with POST")
    return topic, claim


async def _until_may_hand_out(node: ServingNode) -> None:
    """Wait until the node may hand out messages, so that one that was stopped does not."""
    if not await node.role.until_may_deliver(GATE_SECONDS):
        raise Problem("not_ready", "this node may not hand out messages at the moment; try again")


# --------------------------------------------------------------------------- making


async def make_claim(ctx: Context) -> Answer:
    """POST …/claims/{c}: lease messages under a name; a repeat returns the same claim."""
    node, values = ctx.node, await ctx.values()
    name = group_of(ctx, values)
    count_max = values["max"] or CLAIM_ROWS_MAX
    only = TagFilter.parse(values["tags"], values["tags_mode"] or "any")
    await node.room_for_changes()
    await _until_may_hand_out(node)
    # The claim must see all due messages, so ignore the pause since the last release.
    node.run_due(unpaced=True)
    state, now_ms = node.engine.state, node.clock.now_ms()
    known = state.topics.get(ctx.topic_key)
    group = the_group(known, name)
    if group is None:
        check_new_claim(state, now_ms)
    topic = known or node.engine.make_topic(ctx.topic_key[1], now_ms, ctx.topic_key[0])
    group = group or named_in(topic, name)
    claim = begin_claim(
        state,
        topic,
        group,
        ctx.params["claim"],
        ReceiveRequest(count_max=count_max, now_ms=now_ms, only=only),
        lease_ms=values["lease_ms"] or topic.settings.lease_ms,
    )
    asker, masks = (*ctx.topic_key, group.name), EVERYTHING if only is None else only.masks
    begin_asking(node, asker, masks, node.clock.now_ms())
    try:
        await node.run(make_work(state, claim, node.clock.now_ms))
    finally:
        state.timeline.end_asking(asker, node.clock.now_ms(), masks)
    node.wake_ready()
    node.kick_dispatch()
    await node.durable(state.position)
    if claim.state == FORGOTTEN:
        # The claim expired, or its group was removed, before it was complete. No client knows it.
        raise Problem("not_ready", "making this claim took longer than it may; ask again")
    # The claim may have been settled or purged while this call made it or waited.
    check_open(claim, node.clock.now_ms())
    return ctx.answer(_describe(topic, claim))


# --------------------------------------------------------------------------- reading


async def list_claims(ctx: Context) -> Answer:
    """GET …/claims: the claims that have not ended."""
    topic = the_topic(ctx)
    state = ctx.node.engine.state
    groups = [
        number
        for number, group in topic.groups.items()
        if ctx.caller.may("read", ctx.topic_key, group.name)
    ]
    claims = state.claims.of_groups(topic.number, groups)
    return await ctx.durable_answer({"claims": [_describe(topic, claim) for claim in claims]})


async def get_claim(ctx: Context) -> Answer:
    """GET …/claims/{c}: its state."""
    topic, claim = _the_claim(ctx, ctx.query_values())
    return await ctx.durable_answer(_describe(topic, claim))


async def read_claim(ctx: Context) -> Answer | Stream:
    """GET …/claims/{c}/rows: some of its messages, as JSON, a bulk body or Arrow."""
    # A node that does not lead was asked for what it knows, and hands out nothing.
    values, led = ctx.query_values(), ctx.node.role.leading
    rows_max = ctx.node.engine.limits.receive_max
    topic, claim = _the_claim(ctx, values)
    start, stop = values["from"], values["to"]
    if start > stop:
        raise Problem("bad_request", "from must not be greater than to", field="from")
    stop = min(stop, claim.count)
    start = min(start, stop)
    check_open(claim, ctx.node.clock.now_ms())
    await ctx.node.durable(claim.position)
    if led:
        await _until_may_hand_out(ctx.node)
    if ARROW in ctx.headers.get("Accept", ""):
        # A stream that has begun can only be broken off, without a reason.
        check_known(ctx.node.engine.state, claim, start, stop)
        return Stream(_arrow_pieces(ctx, topic, claim, start, stop, led=led), ARROW)
    if stop - start > rows_max:
        raise Problem(
            "bad_request",
            f"an answer has at most {rows_max} rows, except in Arrow, which has no limit"
            + limit_note("receive_max"),
            field="to",
        )
    state, now_ms = ctx.node.engine.state, ctx.node.clock.now_ms()
    check_open(claim, now_ms)
    if stop - start > 1 and claim_bytes(state, claim, start, stop) > RECEIVE_BYTES_MAX:
        raise Problem("too_large", f"these rows have over {RECEIVE_BYTES_MAX} bytes; request fewer")
    got = claim_rows(state, claim, start, stop)
    if ctx.form.accepts_bulk:
        return ctx.bulk_answer(_bulk(claim, got, now_ms))
    members = {
        "messages": _messages(claim, got, packed=ctx.form.packed),
        "from": start,
        "to": stop,
        "n": claim.count,
        "now_ms": now_ms,
    }
    return ctx.answer(members)


def _bulk(claim: Claim, got: ClaimRows, now_ms: int) -> bytes:
    """A bulk answer like that of a receive, with lease 0: the rows may be under several leases."""
    return bulk_delivery(_delivery(claim, got, 0, slice(None)), COLUMNS, now_ms)


def _messages(claim: Claim, got: ClaimRows, *, packed: bool) -> list[dict[str, Any]]:
    """Messages with receipts, so that a single one may be settled too."""
    out: list[dict[str, Any]] = []
    first = 0
    for lease, count in got.leases:
        mine = slice(first, first + count)
        out += message_objects(_delivery(claim, got, lease, mine), packed=packed)
        first += count
    return out


def _delivery(claim: Claim, got: ClaimRows, lease: int, mine: slice) -> Delivery:
    """Some rows of a claim as a delivery of their lease; `lease` = 0 if they are under several."""
    rows = got.rows[mine]
    start = int(got.rows["size"][: mine.start].sum(dtype=np.int64)) if mine.start else 0
    size = int(rows["size"].sum(dtype=np.int64))
    return Delivery(
        lease,
        claim.deadline_ms,
        got.origins[mine],
        rows,
        got.records[start : start + size],
        got.attempts[mine],
        claim.position,
    )


async def _arrow_pieces(
    ctx: Context, topic: Topic, claim: Claim, start: int, stop: int, *, led: bool
) -> AsyncGenerator[bytes, None]:
    """An Arrow IPC stream, a batch at a time."""
    state = ctx.node.engine.state
    pending = schema_bytes()
    while start < stop:
        if led:
            await _until_may_hand_out(ctx.node)
        check_open(claim, ctx.node.clock.now_ms())
        if state is not ctx.node.engine.state:
            raise NotLeadingError("the leadership changed meanwhile; ask again")
        count = _fitting(ctx, claim, start, stop)
        got = claim_rows(state, claim, start, start + count)
        yield pending + batch_bytes(got.rows, got.records, got.origins, got.attempts, topic.name)
        pending = b""
        start += count
        await asyncio.sleep(0)
    yield pending + END


def _fitting(ctx: Context, claim: Claim, start: int, stop: int) -> int:
    """How many of the next messages fit into one record batch."""
    count = min(stop - start, SLICE_ROWS)
    state = ctx.node.engine.state
    while count > 1 and claim_bytes(state, claim, start, start + count) > BATCH_BYTES_MAX:
        count = -(-count // 4)
    return count


# --------------------------------------------------------------------------- settling


async def extend_claim_(ctx: Context) -> Answer:
    """POST …/claims/{c}/extend: extend the lease of all its messages."""
    node, values = ctx.node, await ctx.values()
    topic, claim = _the_claim(ctx, values)
    state = node.engine.state
    extend_claim(state, claim, values["lease_ms"] or claim.lease_ms, node.clock.now_ms())
    members = _describe(topic, claim)
    node.kick_dispatch()
    await node.durable(state.position)
    return ctx.answer({**members, "result": "done"})


async def settle_claim(ctx: Context) -> Answer:
    """POST …/claims/{c}/ack, /release: end all its messages as done, or return them."""
    node, values = ctx.node, await ctx.values()
    await node.room_for_changes()
    state, now_ms = node.engine.state, node.clock.now_ms()
    expire_claims(state, now_ms)
    topic, claim = _the_claim(ctx, values)
    first = decide(state, claim, _SETTLING[ctx.params["action"]], now_ms)
    await node.run(settle_work(state, claim, node.clock.now_ms))
    node.wake_ready()
    node.kick_dispatch()
    await node.durable(state.position)
    return ctx.answer({**_describe(topic, claim), "result": "done" if first else "already"})
