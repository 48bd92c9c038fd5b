"""Handlers of messages: send, receive, peek, settle, and ack with receive.

A send of a whole batch has a bulk or an Arrow body, which are decoded to the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgpack
import numpy as np

from delaylog.broker.calls.access.caller import ANYONE
from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.context import BULK, Context
from delaylog.broker.calls.forms.arrow_stream import ARROW
from delaylog.broker.calls.forms.bulk_bodies import read_batch
from delaylog.broker.calls.forms.deliveries import NOTHING, bulk_delivery, message_objects
from delaylog.broker.calls.places import group_of, permit_group, the_group
from delaylog.broker.calls.request_ids import TRACEPARENT, keep_trace
from delaylog.broker.calls.shapes import (
    ReceiveCall,
    check_columns,
    check_count,
    parse_message,
    parse_receipts,
    parse_receive,
    receive_call,
)
from delaylog.broker.calls.turn.askers import batch_of
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.calls.turn.settles import Named, bulk_settling, settle_bulk, settle_named
from delaylog.broker.calls.turn.writes import Settling, send_batch
from delaylog.broker.engine.deliver.receives import ReceiveRequest, peek
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.model import Delivery, SendResult, Settlement, Topic, integers
from delaylog.broker.engine.send.merge import REJECTED
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.host.waiters import TopicKey
from delaylog.contract.calls.shapes import ACKS, JSON_ROWS_MAX, JSON_VALUES_MAX, RECEIVE
from delaylog.replication.leader import Acks
from delaylog.storage.layout import MessageState, ref_to_id, refs_to_ids
from delaylog.storage.messages.batch import BATCH_VERSION, MessageBatch, Single, unpack_map

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode


# --------------------------------------------------------------------------- send

SHARED_ROWS_MIN: Final = 256
"""Batches of at least this size take turns with single sends: each may take a millisecond."""
RESULT_NAMES: Final = ("created", "kept", "replaced", "rejected")


async def send_body(ctx: Context, acks: Acks | None) -> Answer:
    """A send of a bulk or Arrow body."""
    node = ctx.node
    batch = await read_batch(ctx)
    ctx.take_messages(batch.n, node.clock.now_ms())
    key = ctx.headers.get("Idempotency-Key")
    if key is not None:
        if batch.producer is not None:
            raise Problem(
                "bad_request", "give producer or an Idempotency-Key, not both", field="producer"
            )
        batch.producer, batch.sequence = key_producer(ctx, key), 0
    elif batch.producer is not None:
        batch.producer = _of_caller(ctx, batch.producer)
    result = await send_whole(node, ctx.topic_key, batch, acks)
    return sent_batch_answer(ctx, batch, result, 0)


def sent_batch_answer(ctx: Context, batch: MessageBatch, merged: SendResult, first: int) -> Answer:
    """The answer to a send of columns, whose rows begin at `first` in a merged send."""
    result = merged.part(first, batch.n)
    if ctx.form.kind == ARROW and not ctx.form.accepts_bulk:
        return ctx.answer(_totals(batch.n, result))
    results = result.results
    fields = {
        "v": BATCH_VERSION,
        "n": batch.n,
        "refs": np.asarray(result.refs, "<i8").tobytes(),
        "deliver_at_ms": np.asarray(result.deliver_at_ms, "<i8").tobytes(),
        "result": results if isinstance(results, int) else results.astype(np.uint8).tobytes(),
    }
    return ctx.bulk_answer(msgpack.packb(fields))


def take_acks(values: dict[str, Any]) -> Acks | None:
    """How safe a change must be before its answer; None = as the cluster file says."""
    said = values[ACKS.name]
    return None if said is None else Acks(said)


async def send_whole(
    node: ServingNode, key: TopicKey, batch: MessageBatch, acks: Acks | None
) -> SendResult:
    """Send a batch; returns when it is as safe as `acks` says."""
    if batch.n < SHARED_ROWS_MIN and batch.producer is None:
        result, first = await node.turn.sends.send(key, batch, acks)
        return result.part(first, batch.n)
    if batch.n >= SHARED_ROWS_MIN:
        await node.turn_for_large()
    elif node.engine.housekeeping.crowded():
        await node.room()
    result = send_batch(node, key, batch, node.clock.now_ms())
    await node.role.safe(result.position, acks)
    return result


def _totals(n: int, result: SendResult) -> dict[str, Any]:
    """The number of rows for each result; also each row's result if they differ."""
    results = result.results
    codes = np.full(1, results) if isinstance(results, int) else results
    counts = np.bincount(codes, minlength=len(RESULT_NAMES)).tolist()
    if len(codes) < n:
        counts = [n if count else 0 for count in counts]
    members: dict[str, Any] = {"n": n, **dict(zip(RESULT_NAMES, counts, strict=True))}
    if max(counts) < n:
        members["results"] = [RESULT_NAMES[code] for code in codes.tolist()]
    return members


def key_producer(ctx: Context, key: str) -> str:
    """The producer name that represents an Idempotency-Key of this topic."""
    try:
        raw = key.encode()
    except UnicodeEncodeError:
        raise Problem("bad_request", "an Idempotency-Key is UTF-8") from None
    if not 1 <= len(key) <= 200:
        raise Problem("bad_request", "an Idempotency-Key has 1 to 200 characters")
    # Hashed, because names and key together may be longer than a producer's name may be.
    place = f"{ctx.topic_key[0]}/{ctx.topic_key[1]} ".encode()
    return _of_caller(ctx, f"key {blake2b(place + raw, digest_size=32).hexdigest()}")


def _of_caller(ctx: Context, producer: str) -> str:
    """The name under which a producer's sends are remembered.

    Each principal has names of its own: otherwise a principal could take another one's keys, whose
    sends would then be suppressed, and learn of sends by trying keys.
    """
    return producer if ctx.caller is ANYONE else f"{ctx.caller.name}\0{producer}"


async def send_messages(ctx: Context) -> Answer:
    """POST …/messages: one object, an array, or a bulk or Arrow body."""
    acks = take_acks(ctx.query_values()) if ctx.query_text else None
    if ctx.form.kind in (BULK, ARROW):
        return await send_body(ctx, acks)
    members = await ctx.members(JSON_VALUES_MAX)
    now_ms = ctx.node.clock.now_ms()
    if TRACEPARENT in ctx.headers:
        keep_trace(members, ctx.headers)
    if isinstance(members, list):
        singles = parsed_singles(ctx, members, now_ms)
        return sent_many_answer(ctx, singles, await _send_singles(ctx, singles, acks), 0)
    single = parsed_single(ctx, members, now_ms)
    if "Idempotency-Key" in ctx.headers:
        result, row = await _send_singles(ctx, [single], acks), 0
    else:
        result, row = await ctx.node.turn.sends.send(ctx.topic_key, single, acks)
    return sent_answer(ctx, single, result, row)


def parsed_single(ctx: Context, members: Any, now_ms: int) -> Single:
    """The one message of a send, which the caller's limit allows."""
    single = parse_message(members, limits=ctx.node.engine.limits, now_ms=now_ms)
    ctx.take_messages(1, now_ms)
    return single


def parsed_singles(ctx: Context, members: list[Any], now_ms: int) -> list[Single]:
    """The messages of an array, which the caller's limit allows."""
    limits = ctx.node.engine.limits
    if not 1 <= len(members) <= JSON_ROWS_MAX:
        raise Problem("bad_request", f"an array holds 1 to {JSON_ROWS_MAX} messages")
    singles = [
        parse_message(item, limits=limits, now_ms=now_ms, item=at)
        for at, item in enumerate(members)
    ]
    if len({single.merge for single in singles}) > 1:
        raise Problem(
            "bad_request",
            "all messages of an array must have the same merge, or none",
            field="merge",
        )
    ctx.take_messages(len(singles), now_ms)
    return singles


def sent_answer(ctx: Context, single: Single, result: SendResult, row: int) -> Answer:
    """The answer to a send of one message. Raises a Problem if its id was rejected."""
    code = result.results if isinstance(result.results, int) else int(result.results[row])
    ref, deliver_at_ms = int(result.refs[row]), int(result.deliver_at_ms[row])
    if code == REJECTED:
        raise Problem(
            "conflict",
            "a living message has this id",
            id=single.id.decode(),
            deliver_at_ms=deliver_at_ms,
        )
    own = single.id if single.fields else b""
    named = own.decode() if own else ref_to_id(ref)
    return ctx.answer({"id": named, "deliver_at_ms": deliver_at_ms, "result": RESULT_NAMES[code]})


def sent_many_answer(
    ctx: Context, singles: Sequence[Single], merged: SendResult, first: int
) -> Answer:
    """The answer to a send of an array, whose rows begin at `first` in a merged send."""
    n = len(singles)
    result = merged.part(first, n)
    codes = [result.results] * n if isinstance(result.results, int) else integers(result.results)
    ids = refs_to_ids(integers(result.refs))
    for at, single in enumerate(singles):
        if single.fields and (own := single.id):
            ids[at] = own.decode()
    rows = zip(ids, integers(result.deliver_at_ms), codes, strict=True)
    messages = [
        {"id": named, "deliver_at_ms": due_ms, "result": RESULT_NAMES[code]}
        for named, due_ms, code in rows
    ]
    return ctx.answer({"messages": messages})


async def _send_singles(ctx: Context, singles: list[Single], acks: Acks | None) -> SendResult:
    """Send as one batch; an Idempotency-Key is a producer with one sequence."""
    batch = batch_of(singles, ctx.node.clock.now_ms())
    key = ctx.headers.get("Idempotency-Key")
    if key is not None:
        batch.producer, batch.sequence = key_producer(ctx, key), 0
    return await send_whole(ctx.node, ctx.topic_key, batch, acks)


# --------------------------------------------------------------------------- receive


async def receive_messages(ctx: Context) -> Answer:
    """POST …/receive: lease ready messages, or wait for them."""
    call = parse_receive(await _receive_members(ctx), ctx.node.engine.limits, ctx.address)
    permit_group(ctx, call.group)
    return await _receive(ctx, call)


async def _receive(ctx: Context, call: ReceiveCall, **more: object) -> Answer:
    """Receive and answer; `more` = further members of the answer."""
    ctx.wait_ms = call.wait_ms
    found = await long_poll(ctx.node, ctx.topic_key, call)
    return received_answer(ctx, call, found, ctx.node.clock.now_ms(), more)


def received_answer(
    ctx: Context,
    call: ReceiveCall,
    found: Delivery | None,
    now_ms: int,
    more: Mapping[str, object],
) -> Answer:
    """The answer to a receive; `more` = further members."""
    found, form = found or NOTHING, ctx.form
    ctx.count = found.count
    if form.accepts_bulk:
        return ctx.bulk_answer(bulk_delivery(found, call.columns, now_ms, **more))
    messages = message_objects(found, packed=form.packed)
    return ctx.answer({**more, "messages": messages, "now_ms": now_ms})


async def _receive_members(ctx: Context) -> Any:
    """Members of a receive: JSON, msgpack, or a bulk body without rows."""
    if ctx.form.kind != BULK:
        return await ctx.members(JSON_VALUES_MAX)
    return bulk_members(await ctx.body())


def bulk_members(raw: bytes) -> dict[str, Any]:
    """Members of a receive in a bulk body, which has no rows."""
    fields = unpack_map(raw)
    if "v" in fields:
        check_columns(fields, RECEIVE.names | {"v", "n"})
    check_count(fields, 0)
    return {name: value for name, value in fields.items() if name not in ("v", "n")}


async def peek_messages(ctx: Context) -> Answer:
    """POST …/peek: ready messages, without leasing them."""
    call = parse_receive(await ctx.members(JSON_VALUES_MAX), ctx.node.engine.limits)
    permit_group(ctx, call.group)
    ctx.node.run_due(unpaced=True)
    state = ctx.node.engine.state
    topic = state.topics.get(ctx.topic_key)
    messages = []
    group = the_group(topic, call.group)
    if topic is not None and group is not None:
        now_ms = ctx.node.clock.now_ms()
        refs, rows, entries, records = peek(
            state,
            topic,
            group,
            ReceiveRequest(
                count_max=call.count_max, now_ms=now_ms, only=call.only, chosen=call.ids
            ),
        )
        if len(refs):
            found = Delivery(0, 0, rows["origin"], rows, records, entries["attempts"], 0)
            messages = message_objects(found, packed=ctx.form.packed)
        await ctx.node.durable(state.position)
    return ctx.answer({"messages": messages, "now_ms": ctx.node.clock.now_ms()})


# --------------------------------------------------------------------------- settle


async def settle_messages(ctx: Context) -> Answer:
    """Settle or begin messages by receipts, by ids with force, or by a bulk body."""
    action = ctx.params["action"]
    if ctx.form.kind == BULK:
        return await _settle_bulk(ctx, action)
    values = await ctx.values(JSON_VALUES_MAX)
    wanted = settling_of(action, values)
    await ctx.node.room_for_changes(rows=False)
    topic = ctx.node.engine.state.topics.get(ctx.topic_key)
    receipts, ids = values["receipts"], values["ids"]
    group = None
    if ids is not None or values["group"] is not None:
        # Only ids need a group: receipts contain theirs, and the default group may not exist.
        group = the_group(topic, group_of(ctx, values))
    named: Sequence[Named]
    if receipts is not None and ids is None:
        named = parse_receipts(receipts)
    elif ids is not None and receipts is None:
        if not values["force"]:
            raise Problem("bad_request", "settling by id needs force: true", field="force")
        named = _forced(ctx, topic, group, ids)
    else:
        raise Problem("bad_request", "give receipts, or ids with force", field="receipts")
    ctx.count = len(named)
    return ctx.answer({"results": await settle_named(ctx, wanted, named)})


def settling_of(action: str, values: dict[str, Any]) -> Settling:
    """How the checked members of a call settle."""
    delay_ms, lease_ms, reason = values["delay_ms"], values["lease_ms"], values["reason"]
    return Settling(action, delay_ms, lease_ms, (reason or b"").decode())


async def ack_and_receive(ctx: Context) -> Answer:
    """POST …/ack_and_receive: end messages as done, and take the next ones.

    The ack is durable before the receive begins, so it stays even if the receive fails.
    """
    values = await ctx.values(JSON_VALUES_MAX)
    call, named = receive_call(values, ctx.address), parse_receipts(values["receipts"])
    permit_group(ctx, call.group)
    ctx.node.engine.state.holding.check()
    await ctx.node.room_for_changes(rows=False)
    ctx.count = len(named)
    results = await settle_named(ctx, Settling("ack"), named)
    return await _receive(ctx, call, results=results)


def _forced(ctx: Context, topic: Topic | None, group: Group | None, ids: list[str]) -> list[Named]:
    """(lease, origin) of each id; lease 0, which never exists, if it is not under lease."""
    if topic is None or group is None:
        return [None] * len(ids)
    return [
        None
        if found is None
        else (int(found.entry["lease"]) if found.state is MessageState.LEASED else 0, found.origin)
        for found in find_ids(ctx.node.engine.state, topic, ids, group=group)
    ]


async def _settle_bulk(ctx: Context, action: str) -> Answer:
    fields = unpack_map(await ctx.body())
    wanted, meant = bulk_settling(fields, action, ctx.node.engine.limits)
    await ctx.node.room_for_changes(rows=False)
    return settled_bulk_answer(ctx, meant, await settle_bulk(ctx, wanted, meant))


def settled_bulk_answer(ctx: Context, meant: Receipts, settled: Settlement) -> Answer:
    """The answer to a bulk body that settles."""
    answer = {
        "v": BATCH_VERSION,
        "n": (0 if meant.origins is None else len(meant.origins)) or settled.done,
        "done": settled.done,
        "gone": settled.gone_column.tobytes(),
        "unknown": b"",
    }
    return ctx.bulk_answer(msgpack.packb(answer))
