"""Reads bodies that carry many rows as columns, in any of their media types.

Every body is converted to the columns of the bulk format, which the log stores.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from delaylog.broker.calls.context import BULK, Context
from delaylog.broker.calls.forms.arrow_bodies import decode_arrow, decode_topics
from delaylog.broker.calls.forms.arrow_stream import ARROW
from delaylog.broker.calls.problems import Problem, no_memory
from delaylog.broker.engine.limits import Limits
from delaylog.storage.messages.batch import MessageBatch, decode_send

FORMS: Final = (BULK, ARROW)
ARROW_INLINE_BYTES_MAX: Final = 2 << 20
"""An Arrow body up to this size is converted on the loop, in a few ms; larger ones in a thread."""


async def read_batch(ctx: Context) -> MessageBatch:
    """The rows of a request's body.

    Raises a Problem or BatchError if the body is malformed or has another media type.
    """
    kind = ctx.content_type
    if kind not in FORMS:
        raise Problem(
            "unsupported", f"content type {kind!r} is not read here; use {', '.join(FORMS)}"
        )
    wire = await ctx.body()
    try:
        return await _decode(ctx, kind, wire)
    except MemoryError:
        raise no_memory() from None


async def read_topics(ctx: Context) -> tuple[MessageBatch, list[tuple[str, int]]]:
    """The rows of an Arrow body with a column `topic`: (rows, [(topic, its adjacent rows)])."""
    if ctx.content_type != ARROW:
        raise Problem(
            "bad_request", f"topic is missing; only {ARROW} may have it as a column", field="topic"
        )
    wire = await ctx.body()
    try:
        # In a thread whatever its size: its rows are few for each topic, so its topics are many.
        found = await ctx.node.machine.in_thread(
            partial(decode_topics, wire, ctx.node.engine.limits)
        )
    except MemoryError:
        raise no_memory() from None
    ctx.node.role.check()
    return found


def decoded_bulk(wire: bytes, limits: Limits) -> MessageBatch:
    """The rows of a bulk body. Raises a Problem or BatchError."""
    try:
        return decode_send(wire, rows_max=limits.bulk_rows_max)
    except MemoryError:
        raise no_memory() from None


async def _decode(ctx: Context, kind: str, wire: bytes) -> MessageBatch:
    limits = ctx.node.engine.limits
    if kind == BULK:
        return decoded_bulk(wire, limits)
    if len(wire) <= ARROW_INLINE_BYTES_MAX:
        return decode_arrow(wire, limits)
    batch = await ctx.node.machine.in_thread(partial(decode_arrow, wire, limits))
    if ctx.changes:
        # The node may have lost its leadership since the body arrived.
        ctx.node.role.check()
    return batch
