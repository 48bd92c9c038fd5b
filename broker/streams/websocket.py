"""Opens a stream of deliveries, and carries it over a WebSocket, or hands it to `events`.

A WebSocket has aiohttp's framing and our limits, close codes and reasons. No compression is
offered: a few bytes of a hostile client could become gigabytes. A client that answers no ping is
taken for gone. Frames that are no messages are bounded too: pings and pongs in number, fragments in
bytes (`web/connection.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from delaylog.broker.calls.answers import UPGRADE_REQUIRED, Duplex, Problem, Stream
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.request_ids import HEADER
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.engine.topics.rates import TokenBucket
from delaylog.broker.host.waiters import StopsError
from delaylog.broker.streams.events import HEADERS, pieces
from delaylog.broker.streams.flow import Flow
from delaylog.broker.streams.session import Session
from delaylog.broker.web.responses import NAMED
from delaylog.contract.calls.streams import (
    CLIENT_FRAME_BYTES_MAX,
    CLOSE_BASE,
    CLOSED_OK,
    EVENTS,
    GOING_AWAY,
    HEARTBEAT_SECONDS,
    INTERNAL_ERROR,
)

if TYPE_CHECKING:
    from delaylog.broker.web.connection import Connection


# ------------------------------------------------------------------------------------ WebSocket

CLOSE_SECONDS: Final = 2.0
"""How long a closing handshake may take; then the connection is aborted."""
CONTROLS_PER_S: Final = 10
"""Pings and pongs that a client may send in the long run: they are no calls, so no other limit
counts them.
"""
CONTROLS_BURST: Final = 100
CONTROL_HEAD_BYTES: Final = 6
"""Of a ping or a pong: two bytes and the mask."""
REASON_BYTES_MAX: Final = 123
"""A close frame has no room for more."""
_REASONS: Final[dict[int, bytes]] = {
    WSCloseCode.PROTOCOL_ERROR: b"this is no frame of a WebSocket",
    WSCloseCode.INVALID_TEXT: b"a text frame is not UTF-8",
    WSCloseCode.MESSAGE_TOO_BIG: b"a frame has at most %d bytes" % CLIENT_FRAME_BYTES_MAX,
}
"""The reasons of what aiohttp refuses, which gives none."""
_VERSION: Final = "13"
_NO_CODE: Final = 0
"""aiohttp's code of a close frame without one, as of `close()` in a browser."""

log = logging.getLogger("delaylog.web")


class Socket(web.WebSocketResponse):
    """The channel of a session."""

    def __init__(self, connection: Connection, now_ms: Callable[[], int]) -> None:
        super().__init__(
            heartbeat=HEARTBEAT_SECONDS,
            # aiohttp would answer any number of pings before it returns.
            autoping=False,
            # The leases of a client that leaves in order are returned before the answer.
            autoclose=False,
            compress=False,
            max_msg_size=CLIENT_FRAME_BYTES_MAX,
            timeout=CLOSE_SECONDS,
        )
        self.headers.update(NAMED)
        self._connection = connection
        self._now_ms = now_ms
        self._controls = TokenBucket(CONTROLS_PER_S, CONTROLS_BURST)
        self._kind = WSMsgType.BINARY
        self.left_in_order = False
        """Whether the client has closed the stream and wants its leases to end."""

    async def open(self, request: web.BaseRequest, form: str) -> None:
        """Answer the handshake. Raises a Problem."""
        headers = request.headers
        version = headers.get("Sec-WebSocket-Version", "none")
        if "upgrade" not in headers.get("Connection", "").lower():
            raise _malformed("the header Connection lacks 'Upgrade': a proxy may have removed it")
        if version != _VERSION:
            raise Problem(
                "bad_request",
                f"Sec-WebSocket-Version must be {_VERSION}, not {version[:20]!r}",
                status=UPGRADE_REQUIRED,
            )
        if not self.can_prepare(request):
            raise _malformed("Sec-WebSocket-Key must be 16 bytes in base64")
        await self.prepare(request)
        if form == "json":
            self._kind = WSMsgType.TEXT

    async def write(self, raw: bytes) -> None:  # type: ignore[override]
        """Send a frame; returns when the connection can take another one."""
        await self.send_frame(raw, self._kind)

    async def read(self) -> str | bytes | None:
        """The next frame of the client; None when the connection has ended. Raises a Problem."""
        while (message := await self.receive()).type in (WSMsgType.PING, WSMsgType.PONG):
            await self._take_control(message)
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            self._connection.unframed_bytes = 0
            data: str | bytes = message.data
            return data
        if message.type is WSMsgType.CLOSE:
            self.left_in_order = message.data in (_NO_CODE, CLOSED_OK, GOING_AWAY)
        return None

    async def _take_control(self, message: WSMessage) -> None:
        """Answer a ping; a pong has done its work by arriving. Raises a Problem."""
        self._connection.unframed_bytes -= CONTROL_HEAD_BYTES + len(message.data)
        if not self._controls.take(self._now_ms(), 1):
            # The closing handshake would read the rest of the flood.
            self._connection.is_deaf = True
            raise Problem("quota", f"a stream takes {CONTROLS_PER_S} pings or pongs a second")
        if message.type is WSMsgType.PING:
            await self.pong(message.data)

    async def close(
        self, *, code: int = CLOSED_OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        """Close; a client that reads nothing any more is not waited for."""
        try:
            async with asyncio.timeout(2 * CLOSE_SECONDS):
                reason = message or _REASONS.get(code, b"")
                return await super().close(code=code, message=reason, drain=drain)
        except TimeoutError:
            if self._req is not None and self._req.transport is not None:
                self._req.transport.abort()
            return True


def _malformed(what: str) -> Problem:
    return Problem("bad_request", f"the handshake of the WebSocket is malformed: {what}")


async def carry_stream(
    flow: Flow,
    request: web.BaseRequest,
    request_id: str,
    note: Callable[[Exception], EngineError],
) -> web.StreamResponse:
    """Serve a stream until it ends. Raises a Problem if the handshake is refused.

    `note` is called with the error that ends the stream, and returns what the client is told.
    """
    socket = Socket(cast("Connection", request.protocol), flow.node.clock.now_ms)
    socket.headers[HEADER] = request_id
    await socket.open(request, flow.form)
    code, reason = CLOSED_OK, ""
    try:
        why = await Session(flow, socket).run()
        if why is not None:
            note(why)
            code, reason = closing_of(why)
            # Whoever has lost the rights can settle nothing any more.
            socket.left_in_order |= why.code == "unauthorized"
    except Exception as error:
        code, reason = INTERNAL_ERROR, note(error).detail
    finally:
        # The client may close the connection meanwhile, which cancels this task.
        closing = asyncio.ensure_future(_finish(socket, flow, code, reason))
        await asyncio.shield(closing)
    return socket


async def _finish(socket: Socket, flow: Flow, code: int, reason: str) -> None:
    """Return the leases of a client that has left in order, then close."""
    if socket.left_in_order:
        try:
            await flow.give_back()
        except EngineError as error:
            log.info("cannot return the messages of a stream; their leases expire: %s", error)
    await socket.close(code=code, message=cut(reason))


def closing_of(why: EngineError) -> tuple[int, str]:
    """The close code and the reason of a refusal."""
    code = GOING_AWAY if isinstance(why, StopsError) else CLOSE_BASE + why.kind.status
    return code, f"{why.code}: {why.detail}"


def cut(reason: str) -> bytes:
    """A reason that fits into a close frame."""
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()


# -------------------------------------------------------------------------------------- opening


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
