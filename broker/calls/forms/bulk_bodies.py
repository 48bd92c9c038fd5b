"""Bodies that carry many rows as columns: which media types there are, and how each is read.

Whatever its form, a body comes to the columns of the bulk format, and those are what the log holds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from delaylog.broker.calls.context import BULK, Context
from delaylog.broker.calls.forms.arrow_bodies import decode_arrow
from delaylog.broker.calls.forms.arrow_stream import ARROW
from delaylog.broker.calls.problems import Problem, no_memory
from delaylog.storage.messages.batch import MessageBatch, decode_send

FORMS: Final = (BULK, ARROW)
ARROW_INLINE_BYTES_MAX: Final = 2 << 20
"""An Arrow body up to this size is converted on the spot, in a few ms; others in a thread."""


async def read_batch(ctx: Context) -> MessageBatch:
    """The rows of the body of a request, whole and well formed. A Problem, BatchError says what is
    wrong; so it does where the media type is neither.
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


async def _decode(ctx: Context, kind: str, wire: bytes) -> MessageBatch:
    limits = ctx.node.engine.limits
    if kind == BULK:
        return decode_send(wire, rows_max=limits.bulk_rows_max)
    if len(wire) <= ARROW_INLINE_BYTES_MAX:
        return decode_arrow(wire, limits)
    batch = await asyncio.to_thread(decode_arrow, wire, limits)
    if ctx.changes:
        # What was looked at when the body had come may have changed.
        ctx.node.standing.check()
    return batch
