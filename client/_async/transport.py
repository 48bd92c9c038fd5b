"""The connections to one broker or cluster for asyncio programs, with aiohttp.

The transport sends each request once and reports a failure as NotReached or AnswerLost. While an
exchange or a stream is silent, it has `LeaderWatch` look for another leader. One timer does this
for all exchanges of the client, so an exchange that is answered within a second costs no timer and
no task.
"""

from __future__ import annotations

import asyncio
import io
import os
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
from yarl import URL

from delaylog.client._async.carrier import AsyncCarrying
from delaylog.client.errors import (
    AnswerLate,
    AnswerLost,
    NotReached,
    NotReachedInTime,
)
from delaylog.client.sending.async_sender import OTHER_LOOP
from delaylog.client.wire.exchange import (
    Answer,
    Ask,
    LeftNode,
    Outcome,
    Silence,
    because,
)
from delaylog.client.wire.http_answer import (
    ANSWER_BYTES_MAX,
    TOO_LONG,
    broken_off,
    unanswered,
    unreached,
)

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

WHOLE_BYTES_MAX: Final = 1 << 20


class AsyncTransport(AsyncCarrying):
    """Carries out calls; opens its connections when they are first needed."""

    def _begin(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._aside: aiohttp.ClientSession | None = None
        """For questions: hung exchanges may use all connections of the other session."""
        self._watched: dict[asyncio.Task[Any] | None, Watched] = {}
        """What waits for a node, by its task."""
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> aiohttp.ClientSession:
        """The session, which is created if needed. ClientClosed if it is closed."""
        if self._session is None:
            self.check_open()
            self._session = self._new_session(self._connections_max)
            self._loop = asyncio.get_running_loop()
            self._process_id = os.getpid()
        elif self._loop is not asyncio.get_running_loop():
            raise RuntimeError(OTHER_LOOP)
        return self._session

    def _new_session(self, connections_max: int) -> aiohttp.ClientSession:
        tls = self.route.credentials.tls
        connector = _Connector(
            self._watched, limit=connections_max, ssl=True if tls is None else tls
        )
        # A few bytes of a compressed answer can become gigabytes, so none is asked for or
        # unpacked. The client for threads does neither, too.
        session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, skip_auto_headers=("Accept-Encoding",)
        )
        # aiohttp retries GET, PUT and DELETE itself when a kept-alive connection breaks. A
        # second cancel is answered differently, so the caller has to see the failure.
        session._retry_connection = False
        return session

    async def close(self) -> None:
        """Close the connections. Calls in progress raise AnswerLost."""
        self._closed = True
        if self._process_id != os.getpid():
            # The event loop of the parent watches the connections through a copy of this process's
            # descriptor, so closing them here would stop it from reading their answers.
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
        sessions = self._session, self._aside
        self._session = self._aside = None
        for session in sessions:
            if session is not None:
                await session.close()

    def begin_watch(self, watched: Watched, task: asyncio.Task[Any]) -> None:
        """Look after a block of a task that begins."""
        self._watched[task] = watched
        if self._timer is None:
            self._set_timer()

    def end_watch(self, task: asyncio.Task[Any]) -> None:
        """The block of a task has ended."""
        self._watched.pop(task, None)

    def _set_timer(self) -> None:
        """Look when the first block has been silent for long enough; not while one looks."""
        is_wanted = bool(self._watched) and self.route.known > 1
        if is_wanted and self._looking is None and not self._closed:
            assert self._loop is not None, "it was opened"
            at_s = min(each.look_at_s for each in self._watched.values())
            self._timer = self._loop.call_later(max(at_s - time.monotonic(), 0.0), self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = time.monotonic()
        silent = [each for each in self._watched.values() if each.look_at_s <= now_s]
        if silent:
            self._looking = asyncio.create_task(self._look_after(silent))
        else:
            self._set_timer()

    async def _look_after(self, silent: list[Watched]) -> None:
        try:
            for each in silent:
                if await self._carried(self._leader_watch.look(each)):
                    each.leave()
        finally:
            self._looking = None
            self._set_timer()

    async def _once(self, ask: Ask) -> Outcome:
        """Make one exchange with one node."""
        session = self.open()
        if ask.aside:
            if self._aside is None:
                self._aside = self._new_session(0)
            session = self._aside
        if ask.again_s is None:
            return await self._exchange(session, ask, None)
        watched = Watched(self, ask.node, ask.again_s)
        try:
            with watched:
                return await self._exchange(session, ask, watched)
        except LeftNode as left:
            if watched.connection is None:
                return because(NotReached(f"{ask.name}: no connection, and {left}"), left)
            return because(AnswerLost(f"{ask.name}: no answer, and {left}"), left)

    async def _exchange(
        self, session: aiohttp.ClientSession, ask: Ask, watched: Watched | None
    ) -> Outcome:
        # A connection that takes too long ends before the call does, as not reached.
        timeout = aiohttp.ClientTimeout(total=ask.limit_s, sock_connect=0.75 * ask.limit_s)
        try:
            target = URL(ask.node + ask.path, encoded=True)
        except ValueError:
            return NotReached(f"{ask.name}: not an http address")
        try:
            async with session.request(
                ask.method,
                target,
                data=_readable(ask.body),
                headers=ask.headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                body = await _whole(response, watched)
                if body is None:
                    return AnswerLost(f"{ask.name}: {TOO_LONG}")
                return Answer(
                    response.status,
                    body,
                    response.headers.get("Retry-After"),
                    response.headers.get("Location"),
                    response.headers.get("X-Request-Id"),
                )
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            return NotReached(f"{ask.name}: not an http address")
        except aiohttp.ConnectionTimeoutError as error:
            return because(NotReachedInTime(f"{ask.name}: no connection in time"), error)
        except aiohttp.ClientConnectorError as error:
            # aiohttp's own text mentions TLS even without it.
            return because(NotReached(f"{ask.name}: {unreached(error.os_error)}"), error)
        except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError):
            # aiohttp quotes what it cannot read, and a server may echo the token.
            return AnswerLost(f"{ask.name}: the answer broke off, or is not HTTP")
        except aiohttp.ServerDisconnectedError as error:
            why = unanswered(ask.node, closed=self._closed)
            return because(AnswerLost(f"{ask.name}: {why}"), error)
        except TimeoutError as error:
            return because(AnswerLate(f"{ask.name}: no answer in time"), error)
        except (aiohttp.ClientError, ConnectionError) as error:
            return because(AnswerLost(f"{ask.name}: {broken_off(error)}"), error)


class Watched(Silence):
    """A block in which one task waits for a node.

    Once another node leads, the task is cancelled, and the block raises LeftNode.
    """

    __slots__ = ("_cancelling", "_left", "_task", "_transport", "connection")

    def __init__(self, transport: AsyncTransport, node: str, again_s: float) -> None:
        super().__init__(node, again_s, time.monotonic())
        self._transport = transport
        self._task: asyncio.Task[Any] | None = None
        self._left = False
        self.connection: asyncio.Transport | None = None
        """The connection, once there is one, so that the node may have got the request."""

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "aiohttp needs a task, too"
        self._task, self._cancelling = task, task.cancelling()
        self._transport.begin_watch(self, task)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        assert task is not None, "the block was entered"
        self._transport.end_watch(task)
        if self._left and self.connection is not None:
            # Closing would wait until the silent node has read all that was sent.
            self.connection.abort()
        if self._left and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise LeftNode(f"{self._transport.route.node} leads") from None

    def leave(self) -> None:
        """End the block, unless it has ended."""
        if self._task is not None and not self._left:
            self._left = True
            self._task.cancel()


class _Connector(aiohttp.TCPConnector):
    """Notes which block has a connection."""

    def __init__(self, watched: dict[asyncio.Task[Any] | None, Watched], **options: Any) -> None:
        super().__init__(**options)
        self._of_tasks = watched

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        watched = self._of_tasks.get(asyncio.current_task())
        if watched is not None:
            watched.connection = connection.transport
        return connection


async def _whole(response: aiohttp.ClientResponse, watched: Watched | None) -> bytes | None:
    """The body of an answer; None if it is too long."""
    parts: list[bytes] = []
    left = ANSWER_BYTES_MAX
    while part := await response.content.readany():
        if watched is not None:
            watched.heard(time.monotonic())
        left -= len(part)
        if left < 0:
            return None
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _readable(body: bytes | None) -> bytes | io.BytesIO | None:
    """Wrap a large body as a file: aiohttp warns about large bytes objects."""
    return io.BytesIO(body) if body is not None and len(body) > WHOLE_BYTES_MAX else body
