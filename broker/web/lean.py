"""A lean answer: head and body in one write, without building header objects.

aiohttp's Response costs about as much as a whole engine call. An HTTP/1.1 answer with status 200,
a known type and a small body needs none of it; everything else takes the ordinary way, which
also waits for slow readers.
"""

from __future__ import annotations

from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

LEAN_BODY_MAX: Final = 32_768
"""Above it, the ordinary response with its flow control is used."""
UNREAD_BYTES_MAX: Final = 262_144
"""Answers that wait for a client to read them; beyond it the next one waits with them."""


def lean_fits(request: web.BaseRequest) -> bool:
    """Whether the request is the plain case."""
    return request.version == HttpVersion11 and request.keep_alive and request.method != "HEAD"


class LeanResponse(web.StreamResponse):
    """Status 200 and a body, written at once."""

    def __init__(self, body: bytes, content_type: str) -> None:
        # The base class's own set-up builds a header map that nobody would read.
        self._lean_body = body
        self._lean_type = content_type
        self._keep_alive = True

    @property
    def status(self) -> int:
        """200."""
        return 200

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the whole answer."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        if transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            # A client that sends requests ahead and reads no answers would fill the memory.
            await request._payload_writer.drain()
            if transport.is_closing():
                raise ConnectionResetError("the client has gone")
        body = self._lean_body
        transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\nDate: %b\r\n\r\n%b"
            % (self._lean_type.encode(), len(body), rfc822_formatted_time().encode(), body)
        )
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""
