"""The connections to one broker or cluster for asyncio programs, with aiohttp.

The transport carries out the plan of `exchanging` and makes no decisions itself. It sends each
request once and reports a failure as NotReached or AnswerLost.
"""

from __future__ import annotations

import asyncio
import io
import os
import time
from typing import Final, TypeVar

import aiohttp
from yarl import URL

from delaylog.client.calls.call import Call
from delaylog.client.errors import (
    AnswerLate,
    AnswerLost,
    ClientClosed,
    NotReached,
    NotReachedInTime,
)
from delaylog.client.sending.async_sender import OTHER_LOOP
from delaylog.client.wire.checks import check_whole
from delaylog.client.wire.exchanging import (
    TIMEOUT_S,
    Answer,
    Ask,
    OnRepeat,
    Outcome,
    Pause,
    Times,
    exchange,
)
from delaylog.client.wire.http_answer import (
    ANSWER_BYTES_MAX,
    TOO_LONG,
    broken_off,
    unanswered,
    unreached,
)
from delaylog.client.wire.leader_route import LeaderRoute

T = TypeVar("T")
WHOLE_BYTES_MAX: Final = 1 << 20


class AsyncTransport:
    """Carries out calls; opens its connections when they are first needed."""

    def __init__(
        self,
        route: LeaderRoute,
        *,
        timeout_s: float = TIMEOUT_S,
        connections_max: int = 100,
        failover_s: float | None = None,
        reconnect_s: float | None = None,
    ) -> None:
        check_whole("connections_max", connections_max, 1)
        self.route = route
        self.times = Times(timeout_s, failover_s, reconnect_s)
        self._connections_max = connections_max
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process_id = os.getpid()
        self._closed = False

    def open(self) -> aiohttp.ClientSession:
        """The session, which is created if needed. ClientClosed if it is closed."""
        if self._session is None:
            self.check_open()
            tls = self.route.credentials.tls
            connector = aiohttp.TCPConnector(
                limit=self._connections_max, ssl=True if tls is None else tls
            )
            # A few bytes of a compressed answer can become gigabytes, so none is asked for or
            # unpacked. The client for threads does neither, too.
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=False, skip_auto_headers=("Accept-Encoding",)
            )
            # aiohttp retries GET, PUT and DELETE itself when a kept-alive connection breaks. A
            # second cancel is answered differently, so the caller has to see the failure.
            self._session._retry_connection = False
            self._loop = asyncio.get_running_loop()
            self._process_id = os.getpid()
        elif self._loop is not asyncio.get_running_loop():
            raise RuntimeError(OTHER_LOOP)
        return self._session

    def check_open(self) -> None:
        """Raise ClientClosed if it is closed."""
        if self._closed:
            raise ClientClosed

    async def close(self) -> None:
        """Close the connections. Calls in progress raise AnswerLost."""
        self._closed = True
        if self._process_id != os.getpid():
            # The event loop of the parent watches the connections through a copy of this process's
            # descriptor, so closing them here would stop it from reading their answers.
            return
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def carry(
        self,
        call: Call[T],
        *,
        doubts: list[Exception] | None = None,
        on_repeat: OnRepeat | None = None,
    ) -> T:
        """Carry out a call and return its value. Raises NotReached, AnswerLost or ApiError.

        `doubts` collects the failures after which the call was retried although it may have been
        carried out; `on_repeat` is called with each failure after which it is retried.
        """
        plan = exchange(call, self.route, time.monotonic, self.times, doubts, on_repeat)
        try:
            step = next(plan)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = plan.send(None)
                else:
                    step = plan.send(await self._once(step))
        except StopIteration as done:
            wire: bytes = done.value
        return call.decoded(wire)

    async def _once(self, ask: Ask) -> Outcome:
        """Make one exchange with one node."""
        session = self.open()
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
                body = await _whole(response)
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
            return _because(NotReachedInTime(f"{ask.name}: no connection in time"), error)
        except aiohttp.ClientConnectorError as error:
            # aiohttp's own text mentions TLS even without it.
            return _because(NotReached(f"{ask.name}: {unreached(error.os_error)}"), error)
        except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError):
            # aiohttp quotes what it cannot read, and a server may echo the token.
            return AnswerLost(f"{ask.name}: the answer broke off, or is not HTTP")
        except aiohttp.ServerDisconnectedError as error:
            return _because(AnswerLost(f"{ask.name}: {unanswered(ask.node)}"), error)
        except TimeoutError as error:
            return _because(AnswerLate(f"{ask.name}: no answer in time"), error)
        except (aiohttp.ClientError, ConnectionError) as error:
            return _because(AnswerLost(f"{ask.name}: {broken_off(error)}"), error)


async def _whole(response: aiohttp.ClientResponse) -> bytes | None:
    """The body of an answer; None if it is too long."""
    parts: list[bytes] = []
    left = ANSWER_BYTES_MAX
    while part := await response.content.readany():
        left -= len(part)
        if left < 0:
            return None
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _readable(body: bytes | None) -> bytes | io.BytesIO | None:
    """Wrap a large body as a file: aiohttp warns about large bytes objects."""
    return io.BytesIO(body) if body is not None and len(body) > WHOLE_BYTES_MAX else body


E = TypeVar("E", NotReached, AnswerLost)


def _because(error: E, cause: BaseException) -> E:
    error.__cause__ = cause
    return error
