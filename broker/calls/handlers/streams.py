"""Handler that opens a stream of deliveries: a WebSocket, or server-sent events."""

from __future__ import annotations

from delaylog.broker.calls.answer import Duplex, Stream
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.streams.events import EVENTS, HEADERS, pieces
from delaylog.broker.calls.streams.flow import Flow


async def open_stream(ctx: Context) -> Stream | Duplex:
    """GET …/groups/{group}/stream."""
    values = ctx.query_values()
    ctx.node.engine.state.holding.check()
    if ctx.headers.get("Upgrade", "").strip().lower() == "websocket":
        return Duplex(Flow(ctx, values))
    if EVENTS not in ctx.headers.get("Accept", ""):
        raise Problem(
            "bad_request",
            f"a stream is a WebSocket, or server-sent events: send Upgrade: websocket, or "
            f"Accept: {EVENTS}",
        )
    if values["form"] not in (None, "json"):
        raise Problem("bad_request", "server-sent events are JSON", field="form")
    flow = Flow(ctx, values)
    if not flow.credit:
        raise Problem(
            "bad_request",
            "server-sent events need messages and bytes of at least 1: a client cannot add credit",
            field="messages",
        )
    return Stream(pieces(flow), EVENTS, HEADERS, flow)
