"""Recognises requests that need no HTTP library: calls to topics whose heads are known.

A client sends the same head repeatedly. aiohttp's parser parses a new head once, and the head is
checked and routed once. From then on its bytes are looked up in a cache, which holds the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import HttpVersion11, hdrs
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage

from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Form, form_of
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.routing import Route
from delaylog.broker.calls.short_calls import Begin
from delaylog.broker.calls.trace_context import TRACEPARENT
from delaylog.broker.host.audit.request_ids import HEADER, RequestIds
from delaylog.broker.web.request_checks import RequestChecks
from delaylog.broker.web.request_line import LIMITS

if TYPE_CHECKING:
    from delaylog.broker.web.connection import Connection
    from delaylog.broker.web.short_way import ShortWay

HEADS_KEPT: Final = 4_096
"""Number of heads to cache. Each body length of a client makes a different head."""
HEAD_BYTES_MAX: Final = 1_024
"""Size limit of a head that is cached."""
_REFUSED: Final = (hdrs.EXPECT, "Idempotency-Key", HEADER, TRACEPARENT)
"""Requests with these headers go to aiohttp: it must ask for the body, or the head is unique."""


@dataclass(frozen=True, slots=True)
class Head:
    """A parsed head, valid for every request with the same bytes."""

    end: int
    """Length of the head, in bytes."""
    size: int
    """Length of the request: head and body, in bytes."""
    path: str = ""
    headers: Mapping[str, str] | None = None
    route: Route | None = None
    """The route of the call; None if aiohttp must handle the request."""
    begin: Begin | None = None
    """Begins the call without a task; None if it cannot be."""
    form: Form | None = None
    """The form of the body and of the answer; None without a route."""


class FastLane:
    """The known heads of a server, and the two ways of their calls."""

    def __init__(
        self,
        checks: RequestChecks,
        find_route: Callable[[str, str], Route | None],
        short: ShortWay,
        carry: Callable[[Head, bytes, Connection, str, Caller | None], Awaitable[Answer]],
        ids: RequestIds,
    ) -> None:
        """`find_route` returns the route of a method and path; `carry` carries out a call that has
        no short way, for a caller who is admitted already if one is given.
        """
        self.ids = ids
        self.short = short
        self._checks = checks
        self._find_route = find_route
        self.carry = carry
        self._heads: dict[bytes, Head] = {}
        self._protocol = BaseProtocol(asyncio.get_running_loop())

    def head(self, data: bytes) -> Head | None:
        """The head at the start of `data`; None if it is not complete, or does not state the length
        of its request.
        """
        end = data.find(b"\r\n\r\n") + 4
        raw = data[:end]
        found = self._heads.get(raw)
        if found is None and end > 3:
            message = self._parsed(raw)
            found = None if message is None else self._read(message, len(raw))
            if found is not None and len(raw) <= HEAD_BYTES_MAX:
                if len(self._heads) >= HEADS_KEPT:
                    del self._heads[next(iter(self._heads))]
                self._heads[raw] = found
        return found

    def _parsed(self, raw: bytes) -> RawRequestMessage | None:
        parser = HttpRequestParser(self._protocol, self._protocol._loop, 2**16, **LIMITS)
        try:
            messages, upgraded, _ = parser.feed_data(raw)
        except HttpProcessingError:
            return None
        if len(messages) != 1:
            return None
        message: RawRequestMessage = messages[0][0]
        # Java's client offers an upgrade to h2c with each request, which a server may ignore.
        other = upgraded and message.headers.get(hdrs.UPGRADE, "").lower() != "h2c"
        return None if message.chunked or other else message

    def _read(self, message: RawRequestMessage, end: int) -> Head:
        headers = message.headers
        size = end + int(headers.get(hdrs.CONTENT_LENGTH, 0))
        plain = (
            message.version == HttpVersion11
            and not message.should_close
            and not any(name in headers for name in _REFUSED)
            # Answers to it have no body.
            and message.method != hdrs.METH_HEAD
        )
        if not plain or "?" in message.path:
            return Head(end, size)
        try:
            self._checks.check(headers)
            route = self._find_route(message.method, message.path)
        except Problem:
            return Head(end, size)
        if route is None or not route.common:
            return Head(end, size)
        form = form_of(headers)
        begin = self.short.begin_of(route.call, form)
        return Head(end, size, message.path, headers, route, begin, form)
