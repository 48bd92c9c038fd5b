"""A connection of the HTTP port: plain requests of hot calls are answered here, others by aiohttp.

aiohttp parses a request into objects, and runs it in a task that the connection's task starts. That
costs more than a send. So a request whose head is known (`fast_lane`) and whose body has arrived is
carried out at once. All other requests are passed to aiohttp byte for byte, one at a time. What
arrives behind a request (`request_end`) waits until that is answered, so answers keep the order of
pipelined requests on both paths, and no request suffers from what follows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from delaylog.broker.calls.answers import Problem, problem_answer
from delaylog.broker.host.tls.failed_handshakes import ALERT, opens_with_tls
from delaylog.broker.web.request_end import RequestEnd
from delaylog.broker.web.request_heads import refusal_of
from delaylog.broker.web.responses import UNREAD_BYTES_MAX, LeanResponse, wire_of
from delaylog.contract.calls.streams import CLIENT_FRAME_BYTES_MAX
from delaylog.contract.members import limit_note

if TYPE_CHECKING:
    from delaylog.broker.calls.access.caller import Caller
    from delaylog.broker.calls.access.sessions import Session
    from delaylog.broker.host.waiters import OpenStream
    from delaylog.broker.host.watch.quiet_log import QuietLog
    from delaylog.broker.web.fast_lane import FastLane, Head, ShortRequest

BUFFERED_BYTES_MAX: Final = 16_384
"""Largest incomplete request that is buffered here; aiohttp gets larger ones."""
BUFFERED_SECONDS: Final = 1.0
"""After this time aiohttp gets an incomplete request; it limits how long the body may take."""
UNFRAMED_BYTES_MAX: Final = 4 * CLIENT_FRAME_BYTES_MAX
"""Bytes of a WebSocket without a whole message. Four times the largest one has room for the heads
of its fragments, and for what is buffered behind it; empty fragments would go on for ever.
"""
CONNECTIONS_OWN: Final = 16
"""Connections reserved for HTTP, so that Redis clients cannot lock out a health check."""
_UNFRAMED: Final = (
    f"the fragments of a frame have more than {UNFRAMED_BYTES_MAX} bytes with their heads"
)

log = logging.getLogger("delaylog.web")


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = (
        "_address",
        "_begins",
        "_buffered",
        "_buffered_timer",
        "_carrying",
        "_end",
        "_full",
        "_lane",
        "_theirs",
        "_waiting",
        "caller",
        "flow",
        "is_deaf",
        "session",
        "unframed_bytes",
    )

    def __init__(self, server: Server, lane: FastLane, **options: Any) -> None:
        super().__init__(server, **options)
        self._lane = lane
        self._carrying: asyncio.Task[None] | ShortRequest | None = None
        """The request in progress, unless aiohttp has it."""
        self._address: str | None = None
        self._begins = False
        """Whether `_begin` runs, which begins the request behind one that is answered at once."""
        self._buffered = b""
        """Bytes that arrived after the request in progress, or the beginning of a request."""
        self._full = False
        """Whether reading is paused because too many bytes are buffered in `_buffered`."""
        self._buffered_timer: asyncio.TimerHandle | None = None
        self._theirs = False
        """Whether aiohttp has the request in progress."""
        self._end = RequestEnd(lane.head, None)
        """The end of the request that aiohttp got last."""
        self.caller: Caller | None = None
        """Who made the last call."""
        self.session: Session | None = None
        """The session by which the last call came, or its ticket was made."""
        self.flow: OpenStream | None = None
        """The stream that the connection carries, from its call on."""
        self.is_deaf = False
        """Whether what a WebSocket receives is discarded: it is being closed for a flood."""
        self.unframed_bytes = 0
        """Bytes of a WebSocket that have arrived since its last message was read."""

    # ------------------------------------------------------------------ its life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve the client, or refuse it while there are too many connections."""
        server = self._manager
        assert isinstance(server, Server)
        if server.has_room():
            # uvloop would write at the end of the loop's turn. A process that is stopped in between
            # would hand out messages when it goes on, after its gate was looked at.
            cast("asyncio.Transport", transport).set_write_buffer_limits(0)
            super().connection_made(transport)
            return
        # aiohttp must not remove a connection that it has never added.
        self._manager = None
        refused = cast("asyncio.Transport", transport)
        refused.write(_too_many(self._lane.ids.new()))
        refused.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client has gone: cancel its call, so that a long poll leases no messages for it."""
        if self._carrying is not None:
            self._carrying.cancel()
        self._stop_timer()
        if self._full:
            self._lane.resets.forget(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer malformed HTTP, then close the connection."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        server = self._manager
        assert isinstance(server, Server)
        refusal = refusal_of(exc, self._end.opening)
        server.count_problem(refusal.code)
        return LeanResponse(problem_answer(refusal), self._lane.ids.new(), close=True)

    def _process_keepalive(self) -> None:
        """Close the connection if it has been idle for the keep-alive timeout."""
        if self._carrying is None and not self._buffered:
            super()._process_keepalive()
        else:
            after = self._keepalive_timeout
            self._keepalive_handle = self._loop.call_later(after, self._process_keepalive)

    def log_exception(self, *args: Any, **options: Any) -> None:
        """Log exceptions, except unreadable bodies, which have been answered."""
        if not isinstance(options.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **options)

    # ------------------------------------------------------------------ what arrives

    def data_received(self, data: bytes) -> None:
        """Start a request that is complete, pass it to aiohttp, or buffer it."""
        if not data:
            # aiohttp makes its parser continue with this call.
            super().data_received(data)
            return
        if self._upgraded and self.flow is not None:
            self.unframed_bytes += len(data)
            if self.unframed_bytes > UNFRAMED_BYTES_MAX:
                self.is_deaf = True
                self.flow.end(Problem("bad_request", _UNFRAMED))
            if self.is_deaf:
                return
        if self._theirs:
            if self._payload_parser is not None or not self._end.is_reached:
                self._pass_on(data)
            else:
                self._wait(self._buffered + data)
            return
        if self._buffered or self._carrying is not None:
            data = self._buffered + data
        if self._carrying is None:
            self._begin(data)
        else:
            self._wait(data)

    def _wait(self, data: bytes) -> None:
        """Buffer what arrived behind the request in progress."""
        self._buffered = data
        if len(data) > BUFFERED_BYTES_MAX and self.transport is not None:
            # Perhaps again: aiohttp resumes reading for a body.
            self._full = True
            self._lane.resets.pause(self, self.transport)

    @property
    def is_busy(self) -> bool:
        """Whether a call of this connection is in progress."""
        return self._carrying is not None or self._current_request is not None

    def _begin(self, data: bytes) -> None:
        """Begin a request, and those behind it as far as they are answered at once."""
        self._begins = True
        try:
            while data:
                self._buffered = b""
                if self._force_close or self._close:
                    return
                head = self._lane.head(data)
                if head is None or head.route is None or head.size > len(data):
                    self._defer(data, head)
                    return
                if self._buffered_timer is not None:
                    self._stop_timer()
                self._buffered = data[head.size :]
                self._lane.short.begin(head, data[head.end : head.size], self)
                if self._carrying is not None:
                    return
                data = self._buffered
        finally:
            self._begins = False

    def _defer(self, data: bytes, head: Head | None) -> None:
        """Hold a request until the rest arrives, or pass it to aiohttp."""
        if head is None:
            if opens_with_tls(data):
                self._refuse_tls()
            elif b"\r\n\r\n" in data or len(data) > BUFFERED_BYTES_MAX:
                self._give(data, None)
            else:
                self._hold(data)
        elif head.route is None or head.size > max(len(data), BUFFERED_BYTES_MAX):
            self._give(data, head)
        else:
            self._hold(data)

    def _refuse_tls(self) -> None:
        """Close the connection of a client that begins a TLS handshake, and tell it why."""
        server = self._manager
        assert isinstance(server, Server)
        server.quiet.tell("tls", "an HTTP client speaks TLS, and this port does not")
        if self.transport is not None:
            self.transport.write(ALERT)
        self.force_close()

    def _hold(self, data: bytes) -> None:
        """Keep the beginning of a request until the rest arrives."""
        self._buffered = data
        self._read_on()
        if self._buffered_timer is None:
            self._buffered_timer = self._loop.call_later(BUFFERED_SECONDS, self._buffered_too_long)

    def _read_on(self) -> None:
        """Resume reading if few bytes are buffered."""
        if self._full and len(self._buffered) <= BUFFERED_BYTES_MAX and self.transport is not None:
            self._full = False
            self._lane.resets.forget(self)
            self.transport.resume_reading()

    def _give(self, data: bytes, head: Head | None) -> None:
        """Leave the request at the start of these bytes to aiohttp."""
        self._stop_timer()
        self._theirs = True
        self._end = RequestEnd(self._lane.head, head)
        self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        """Pass the bytes of aiohttp's request to aiohttp; those behind it wait for its answer."""
        size = len(data) if self._payload_parser is not None else self._end.take(data)
        self._buffered = data[size:]
        # First: aiohttp may pause reading for a large body.
        self._read_on()
        super().data_received(data[:size])

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Carry a WebSocket from now on: what arrived behind its request belongs to it."""
        super().set_parser(parser, data_received_cb)
        data, self._buffered = self._buffered, b""
        self._read_on()
        if data:
            self.data_received(data)

    @property
    def _waiter(self) -> asyncio.Future[None] | None:
        """What aiohttp awaits while it has no request. It sets it anew once it has answered one."""
        return self._waiting

    @_waiter.setter
    def _waiter(self, waiter: asyncio.Future[None] | None) -> None:
        self._waiting = waiter
        if waiter is not None and self._theirs and self._end.is_reached:
            self._theirs = False
            if self._buffered:
                self._loop.call_soon(self._take_back)

    def _take_back(self) -> None:
        """Begin what waited for aiohttp's answer, unless more has arrived, and has begun it."""
        if self._buffered and self._carrying is None and not self._theirs:
            self._begin(self._buffered)

    def _buffered_too_long(self) -> None:
        self._buffered_timer = None
        data, self._buffered = self._buffered, b""
        self._give(data, None)

    def _stop_timer(self) -> None:
        if self._buffered_timer is not None:
            self._buffered_timer.cancel()
            self._buffered_timer = None

    # ------------------------------------------------------------------ what is answered

    @property
    def address(self) -> str:
        """The client's host, "" if it is not known. It is asked for once."""
        found = self._address
        if found is None:
            peer = None if self.transport is None else self.transport.get_extra_info("peername")
            found = self._address = str(peer[0]) if peer else ""
        return found

    def begin_call(self, call: ShortRequest) -> None:
        """A call without a task is in progress from now on."""
        self._carrying = call
        self._request_in_progress = True

    def end_call(self) -> None:
        """No call is in progress any more."""
        self._carrying = None
        self._request_in_progress = False
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)

    def answer(self, wire: bytes) -> None:
        """Answer the call in progress; `go_on` begins the next one."""
        transport = self.transport
        if transport is not None and transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self._carrying = self._loop.create_task(self._answer_late(wire))
            return
        self.end_call()
        if transport is not None:
            transport.write(wire)

    async def _answer_late(self, wire: bytes) -> None:
        """Answer once the client has read earlier answers, which would fill the memory."""
        try:
            await self._drain_helper()
            if self.transport is not None:
                self.transport.write(wire)
        except BaseException:
            self.force_close()
            raise
        finally:
            self.end_call()
        self.go_on()

    def carry(self, head: Head, body: bytes, caller: Caller | None) -> None:
        """Carry out a request in a task, for a caller who is admitted already if one is given."""
        self._carrying = self._loop.create_task(self._carry(head, body, caller))

    async def _carry(self, head: Head, body: bytes, caller: Caller | None) -> None:
        self._request_in_progress = True
        request_id = self._lane.ids.new()
        try:
            answer = await self._lane.carry(head, body, self, request_id, caller)
            transport = self.transport
            if transport is not None and transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                # A client that reads no answers would fill the memory.
                await self._drain_helper()
                transport = self.transport
            if transport is not None:
                transport.write(wire_of(answer, request_id))
        except ConnectionError:
            self.force_close()
            return
        except asyncio.CancelledError:
            self.force_close()
            raise
        except Exception as error:
            # Failed calls are answered by the lane: this answer could not be written.
            facts = {"path": head.path, "request_id": request_id}
            log.error("unexpected error", exc_info=error, extra=facts)
            self.force_close()
            return
        finally:
            self.end_call()
        self.go_on()

    def go_on(self) -> None:
        """Read on, and begin the next call, unless the answer to the last one still waits."""
        if self._carrying is not None or self.transport is None:
            return
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._full:
            self._read_on()
        if self._buffered and not self._begins:
            try:
                self._begin(self._buffered)
            except Exception as error:
                # The loop closes the connection, too, if `data_received` fails. Here a commit may
                # have called, and would end the node.
                log.error("unexpected error", exc_info=error)
                self.force_close()


class Server(web.Server):
    """The server. `HttpFace.start` configures it to cancel the call of a client that disconnects,
    so that a long poll leases no messages for that client.
    """

    has_room: Callable[[], bool]
    lane: FastLane
    quiet: QuietLog
    count_problem: Callable[[str], None]
    """Counts a refusal, by its code."""

    def __call__(self) -> RequestHandler:
        return Connection(self, self.lane, loop=self._loop, **self._kwargs)


def _too_many(request_id: str) -> bytes:
    """The answer to a connection over the limit, sent before any request."""
    answer = problem_answer(
        Problem(
            "not_ready",
            "the broker is at its limit of connections"
            + limit_note("connections_max")
            + "; try again",
            begun=False,
        )
    )
    return wire_of(answer, request_id, close=True)
