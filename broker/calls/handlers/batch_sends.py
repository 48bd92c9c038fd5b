"""Sends of whole batches: bulk and Arrow bodies, which are decoded to the same columns."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgpack
import numpy as np

from delaylog.broker.calls.access.caller import ANYONE
from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.forms.arrow_stream import ARROW
from delaylog.broker.calls.forms.bulk_bodies import read_batch
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.turn.writes import send_batch
from delaylog.broker.engine.model import SendResult
from delaylog.broker.host.waiters import TopicKey
from delaylog.replication.leading.leader import Acks
from delaylog.storage.messages.batch import BATCH_VERSION, MessageBatch

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode

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
    if ctx.content_type == ARROW and not ctx.accepts_bulk:
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


async def send_whole(
    node: ServingNode, key: TopicKey, batch: MessageBatch, acks: Acks | None
) -> SendResult:
    """Send a batch; returns when it is as safe as `acks` says."""
    if batch.n < SHARED_ROWS_MIN and batch.producer is None:
        result, first = await node.turn.sends.send(key, batch, acks)
        return result.part(first, batch.n)
    if batch.n >= SHARED_ROWS_MIN:
        await node.turn_for_large()
    elif node.crowded:
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
