"""Hot calls that need no HTTP library and no task: calls to topics whose heads are known.

A client sends the same head repeatedly. aiohttp's parser parses a new head once, and the head is
checked and routed once. From then on its bytes are looked up in a cache, which holds the result.
`ShortWay` begins such a call as it arrives, and a callback answers it: it finds the caller and
checks the right; `calls/short_calls` carries the call out. A call that it does not begin is left to
the general way, `FastLane.carry` in a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import HttpVersion11, hdrs
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage

from delaylog.broker.calls.access.caller import Caller, permit
from delaylog.broker.calls.answers import Answer, Problem, problem_answer
from delaylog.broker.calls.context import Form, form_of
from delaylog.broker.calls.request_ids import HEADER, TRACEPARENT, RequestIds
from delaylog.broker.calls.routes import Route
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.short_calls import Begin, ShortCall, begin_of
from delaylog.broker.host.system.resets import Resets
from delaylog.broker.host.watch.metrics import Metrics
from delaylog.broker.web.callers import Callers
from delaylog.broker.web.outcomes import CallAudit, Outcomes
from delaylog.broker.web.request_heads import LIMITS, RequestChecks
from delaylog.broker.web.responses import wire_of
from delaylog.contract.calls.call import ApiCall

if TYPE_CHECKING:
    from delaylog.broker.web.connection import Connection


# ---------------------------------------------------------------------------------- known heads

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
    """Length of the request: head and body, in bytes; of the head alone if the body is chunked."""
    path: str = ""
    headers: Mapping[str, str] | None = None
    route: Route | None = None
    """The route of the call; None if aiohttp must handle the request."""
    begin: Begin | None = None
    """Begins the call without a task; None if it cannot be."""
    form: Form | None = None
    """The form of the body and of the answer; None without a route."""
    chunked: bool = False
    """Whether the body tells its length by chunks."""


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
        self.resets = Resets()
        self._checks = checks
        self._find_route = find_route
        self.carry = carry
        self._heads: dict[bytes, Head] = {}
        self._protocol = BaseProtocol(asyncio.get_running_loop())

    def head(self, data: bytes) -> Head | None:
        """The head at the start of `data`; None if it is not complete, or is malformed."""
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
            messages, _, _ = parser.feed_data(raw)
        except HttpProcessingError:
            return None
        if len(messages) != 1:
            return None
        message: RawRequestMessage = messages[0][0]
        return message

    def _read(self, message: RawRequestMessage, end: int) -> Head:
        headers = message.headers
        if message.chunked:
            return Head(end, end, chunked=True)
        size = end + int(headers.get(hdrs.CONTENT_LENGTH, 0))
        plain = (
            message.version == HttpVersion11
            # Java's client offers an upgrade to h2c with each request, which a server may ignore.
            and (not message.upgrade or headers.get(hdrs.UPGRADE, "").lower() == "h2c")
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


# ------------------------------------------------------------------------- calls without a task

log = logging.getLogger("delaylog.web")


class ShortWay:
    """Begins calls of one HTTP face without a task."""

    def __init__(
        self,
        node: ServingNode,
        callers: Callers,
        audit: CallAudit,
        outcomes: Outcomes,
        metrics: Metrics,
        ids: RequestIds,
    ) -> None:
        self.node = node
        self._callers = callers
        self.ids = ids
        self.audit = audit
        self.outcomes = outcomes
        self._metrics = metrics

    def begin_of(self, call: ApiCall, form: Form) -> Begin | None:
        """What begins a call of this form; None = it takes the general way, as do calls that
        the audit log records whatever their outcome.
        """
        return None if self.audit.records(call.right) else begin_of(call, form)

    def begin(self, head: Head, body: bytes, connection: Connection) -> None:
        """Begin a request of the fast lane: without a task, or else by the general way."""
        begin, route = head.begin, head.route
        caller = None if begin is None else self._admit(head, connection)
        if begin is None or route is None or caller is None:
            connection.carry(head, body, None)
            return
        call = ShortRequest(self, head, route, body, connection, caller)
        connection.begin_call(call)
        try:
            permit(caller, route.call, route.topic_key, route.params)
            begun = begin(call)
        except Exception as error:
            call.fail(error)
            begun = True
        if begun:
            self._metrics.fast_requests += 1
        else:
            connection.end_call()
            connection.carry(head, body, caller)

    def _admit(self, head: Head, connection: Connection) -> Caller | None:
        """The caller of a request that may take the short way, admitted; None: it may not."""
        try:
            self.node.role.check()
            return self._callers.by_token(head.headers or {}, connection)
        except Exception:
            # The general way waits, or refuses.
            return None


class ShortRequest(ShortCall):
    """One request of a connection."""

    changes = True
    _on_gone: Callable[[], None] | None = None
    """None again once the call is over: what it calls refers to this request."""

    def __init__(
        self,
        way: ShortWay,
        head: Head,
        route: Route,
        body: bytes,
        connection: Connection,
        caller: Caller,
    ) -> None:
        # As the base classes and `about` do it, whose calls would take longer.
        self.node = way.node
        self.headers, self.query_text, self.raw = head.headers or {}, "", body
        self.call, self.topic_key, self.params = route.call, route.topic_key, route.params
        self.name = route.call.name
        self.caller = caller
        self.request_id = way.ids.new()
        self._way = way
        self._path, self._form = head.path, head.form
        self.origin = connection
        self._began_s = way.node.machine.steady_s()

    @property
    def address(self) -> str:
        """The host that the call came from."""
        return str(self.origin.address)

    def composed(self, answer: Answer) -> bytes:
        """The bytes of an answer."""
        return wire_of(answer, self.request_id)

    def reply(self, answer: Answer) -> None:
        """Answer the call, unless the client has left. Raises nothing, as `send`."""
        if self.gone:
            return
        try:
            composed = self.composed(answer)
        except Exception as error:
            self._break_off(error)
            return
        self.send(composed)

    def send(self, composed: bytes) -> None:
        """Answer the call with these bytes, unless the client has left.

        It raises nothing: the caller may be the commit of other calls too.
        """
        if self.gone:
            return
        self.gone, self._on_gone = True, None
        try:
            self.origin.answer(composed)
        except Exception as error:
            self._break_off(error)
            return
        self._way.outcomes.timed(self, self._began_s)
        self.origin.go_on()

    def _break_off(self, error: Exception) -> None:
        """The call cannot be answered: the connection must end."""
        facts = {"path": self._path, "request_id": self.request_id}
        log.error("unexpected error", exc_info=error, extra=facts)
        self._cut()

    def _cut(self) -> None:
        self.gone, self._on_gone = True, None
        self.origin.force_close()
        self.origin.end_call()

    def fail(self, error: BaseException) -> None:
        """Answer the call with a refusal, or with a fault of the broker."""
        try:
            assert isinstance(error, Exception), "a call that was cancelled has no error"
            problem = self._way.outcomes.problem(error, self, self._path)
            self._way.audit.note_refusal(self, problem.code, self._path)
            answer = problem_answer(problem)
        except Exception:
            # The refusal could not be made: without an answer the connection must end.
            self._cut()
            return
        self.reply(answer)

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call back if the client leaves before the call is answered."""
        self._on_gone = call

    def cancel(self) -> None:
        """The client has left."""
        if not self.gone:
            self.gone = True
            call, self._on_gone = self._on_gone, None
            if call is not None:
                call()
