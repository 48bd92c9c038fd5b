"""Bodies that carry many rows as columns: which media types there are, and how each is read.

Whatever its form, a body comes to the columns of the bulk format, and those are what the log
holds: a form more is one more entry in `FORMS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.limits import Limits
from delaylog.broker.web.context import BULK, Context
from delaylog.broker.web.problems import Problem
from delaylog.storage.batch import MessageBatch, decode_send
from delaylog.storage.own_backoff import column_has_own_backoffs


def decode_bulk(wire: bytes, limits: Limits) -> MessageBatch:
    """A bulk body of messages. Raises BatchError or a Problem."""
    batch = decode_send(wire, rows_max=limits.bulk_rows_max)
    if not batch.headers.empty and column_has_own_backoffs(batch.headers, batch.n).any():
        # That is how the broker itself stores it: no form of a request.
        raise Problem("bad_request", "headers must be a msgpack map of texts", field="headers")
    return batch


FORMS: Final[dict[str, Callable[[bytes, Limits], MessageBatch]]] = {BULK: decode_bulk}
"""By media type. A batch that comes of another form has the same columns as its `wire`."""


async def read_batch(ctx: Context) -> MessageBatch:
    """The messages in the body of a request that takes nothing but columns."""
    kind = ctx.content_type
    read = FORMS.get(kind)
    if read is None:
        raise Problem(
            "unsupported", f"content type {kind!r} is not read here; use {', '.join(FORMS)}"
        )
    return read(await ctx.body(), ctx.node.engine.limits)
