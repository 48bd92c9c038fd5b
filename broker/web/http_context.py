"""A call over HTTP: its headers, and a body that may still be arriving, within a limit of memory.

One limit holds for the whole process, for any number of connections. Bytes count when they arrive,
so a client that only announces a large body takes no memory from others. A body that arrives
together with its head does not count, because it is small.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import HttpVersion11, StreamReader, web

from delaylog.broker.calls.answers import Problem, no_memory
from delaylog.broker.calls.context import Context, too_large
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.contract.members import limit_note

# ---------------------------------------------------------------------------- memory for bodies


class BodyBudget:
    """Bytes of bodies that have arrived and are not answered yet."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes_held = 0

    def take(self, size: int) -> None:
        """Count bytes that have arrived. Raises a Problem if they exceed the limit."""
        if self.bytes_held + size > self._bytes_max:
            raise Problem(
                "not_ready",
                f"the bodies of all requests together have at most {self._bytes_max} bytes"
                + limit_note("bodies_bytes_max")
                + "; try again",
            )
        self.bytes_held += size

    def give_back(self, size: int) -> None:
        """Release the bytes of a request that has ended."""
        self.bytes_held -= size
        assert self.bytes_held >= 0, "no body gives back what it did not take"


# ------------------------------------------------------------------------------------- the call

READ_SECONDS_MAX: Final = 30
"""A request's body arrives within this time, or the call ends with 408."""


class HttpContext(Context):
    """A request whose body may still be arriving."""

    def __init__(self, node: ServingNode, request: web.BaseRequest, query_text: str) -> None:
        super().__init__(node, request.headers, query_text)
        self.request = request
        self.budget: BodyBudget | None = None
        """Counts the bytes of a body that arrives in pieces."""
        self.bytes_held = 0

    @property
    def encrypted(self) -> bool:
        """Whether the call came over TLS."""
        transport = self.request.transport
        return transport is not None and transport.get_extra_info("ssl_object") is not None

    async def _body(self, size_max: int) -> bytes:
        request = self.request
        if request.content.is_eof():
            # The whole body has arrived: awaiting it would only cost a coroutine.
            raw = request.content.read_nowait()
            if len(raw) > size_max:
                raise too_large(size_max)
            return raw
        if (request.content_length or 0) > size_max:
            raise too_large(size_max)
        transport = request.transport
        waits = request.headers.get("Expect", "").lower() == "100-continue"
        if transport is not None and waits and request.version >= HttpVersion11:
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                return await self._pieces(request.content, size_max)
        except TimeoutError:
            raise Problem(
                "timeout", f"the body did not arrive within {READ_SECONDS_MAX} s"
            ) from None
        except MemoryError:
            raise no_memory() from None

    async def _pieces(self, content: StreamReader, size_max: int) -> bytes:
        pieces, size = [], 0
        while piece := await content.readany():
            size += len(piece)
            if size > size_max:
                raise too_large(size_max)
            if self.budget is not None:
                self.budget.take(len(piece))
                self.bytes_held = size
            pieces.append(piece)
        return b"".join(pieces)
