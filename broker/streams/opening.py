"""Opens a stream of deliveries: a WebSocket, or server-sent events."""

from __future__ import annotations

from functools import partial

from delaylog.broker.calls.answer import Duplex, Stream
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem
from delaylog.broker.streams.events import HEADERS, pieces
from delaylog.broker.streams.flow import Flow
from delaylog.broker.streams.websocket import carry_stream
from delaylog.contract.calls.streams import EVENTS


async def open_stream(ctx: Context) -> Stream | Duplex:
    """GET …/groups/{group}/stream."""
    values = ctx.query_values()
    ctx.node.engine.state.holding.check()
    if ctx.headers.get("Upgrade", "").strip().lower() == "websocket":
        flow = Flow(ctx, values)
        return Duplex(flow, partial(carry_stream, flow))
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
