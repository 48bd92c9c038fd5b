"""Encodes an `Answer` for the wire: as bytes, or as a response of aiohttp.

aiohttp's Response costs about as much as a whole engine call. So a small answer to an ordinary
request is written directly; all others use aiohttp's Response, which also waits for slow readers.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Final

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

from delaylog.broker.calls.answers import Answer, Stream
from delaylog.broker.calls.request_ids import HEADER
from delaylog.contract.calls.streams import HEARTBEAT_SECONDS

LEAN_BODY_MAX: Final = 32_768
"""A larger answer uses aiohttp's Response, which has flow control."""
UNREAD_BYTES_MAX: Final = 262_144
"""Limit of answers that a client has not read yet; beyond it, the next answer is delayed."""


def wire_of(answer: Answer, request_id: str = "", *, close: bool = False) -> bytes:
    """Head and body of an answer; with `close`, the connection ends after it."""
    status, body, headers = answer.status, answer.body, answer.headers
    phrase = "OK" if status == 200 else HTTPStatus(status).phrase
    if close:
        headers = {**headers, "Connection": "close"}
    more = f"X-Request-Id: {request_id}\r\n" if request_id else ""
    if headers:
        more += "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: {answer.kind}\r\n"
        f"Content-Length: {len(body)}\r\nDate: {rfc822_formatted_time()}\r\n{more}\r\n"
    )
    return head.encode() + body


def response_to(request: web.BaseRequest, answer: Answer, request_id: str) -> web.StreamResponse:
    """The cheapest response to a request."""
    lean = (
        answer.status == 200
        and not answer.headers
        and len(answer.body) <= LEAN_BODY_MAX
        and request.version == HttpVersion11
        and request.keep_alive
    )
    return LeanResponse(answer, request_id) if lean else response_of(answer, request_id)


UNHEARD_SECONDS: Final = 2 * HEARTBEAT_SECONDS
"""How long a client of server-sent events may acknowledge nothing of what is sent."""
NAMED: Final = {"Server": "delaylog"}
"""Replaces aiohttp's header, which tells strangers the versions of Python and aiohttp."""


class LeanResponse(web.StreamResponse):
    """An answer that is written at once."""

    def __init__(self, answer: Answer, request_id: str, *, close: bool = False) -> None:
        # The base class's `__init__` is skipped: it builds a header map that is never read.
        self._answer = answer
        self._request_id = request_id
        self._keep_alive = not close

    @property
    def status(self) -> int:
        """Status of the answer."""
        return self._answer.status

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the whole answer."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        if transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            # A client that pipelines requests but reads no answers would fill the memory.
            await request._payload_writer.drain()
            if transport.is_closing():
                raise ConnectionResetError("the client has gone")
        wire = wire_of(self._answer, self._request_id, close=not self._keep_alive)
        if request.method == hdrs.METH_HEAD:
            wire = wire[: len(wire) - len(self._answer.body)]
        transport.write(wire)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""


def response_of(answer: Answer, request_id: str = "") -> web.Response:
    """An answer as an aiohttp response."""
    return web.Response(
        body=answer.body, status=answer.status, headers=_headers(answer, request_id)
    )


def _headers(answer: Answer | Stream, request_id: str) -> dict[str, str]:
    """The headers of an answer; a request has no id beside an embedded broker."""
    named = {HEADER: request_id} if request_id else {}
    return {"Content-Type": answer.kind, **NAMED, **answer.headers, **named}


async def send_pieces(
    request: web.BaseRequest,
    answer: Stream,
    request_id: str,
    note: Callable[[Exception], object],
) -> web.StreamResponse:
    """Send a body piece by piece. If it fails midway, `note` is called with the error, and the
    connection is aborted.
    """
    if answer.flow is not None and request.transport is not None:
        _end_unheard(request.transport)
    response = web.StreamResponse(headers=_headers(answer, request_id))
    try:
        async with aclosing(answer.pieces) as pieces:
            async for piece in pieces:
                if not response.prepared:
                    await response.prepare(request)
                if request.method == hdrs.METH_HEAD:
                    break
                await response.write(piece)
    except Exception as error:
        if not response.prepared:
            raise
        if not isinstance(error, ConnectionError):
            note(error)
        # The status is sent already: only an aborted connection tells the client that the body is
        # incomplete.
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


def _end_unheard(transport: asyncio.Transport) -> None:
    """Have the kernel end a connection whose client acknowledges nothing.

    A client of server-sent events sends nothing, so a half-open connection would lease messages
    again and again until the kernel gives up, a quarter of an hour later.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    peer = transport.get_extra_info("socket")
    if option is not None and peer is not None:
        peer.setsockopt(socket.IPPROTO_TCP, option, round(UNHEARD_SECONDS * 1000))
