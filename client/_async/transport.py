"""The connections of one broker or cluster for asyncio programs, by aiohttp.

The one rule: it carries out the plan of `exchanging` and decides nothing itself; each request goes
out once, and its failure is told as nothing done or nobody knows.
"""

from __future__ import annotations

import asyncio
import io
import os
import ssl
import time
from typing import Final, TypeVar

import aiohttp
from yarl import URL

from delaylog.client.calls.call import Call
from delaylog.client.errors import AnswerLost, ClientError, NotReached
from delaylog.client.wire.checks import check_connection
from delaylog.client.wire.exchanging import (
    CALL_TIMEOUT_S,
    FAILOVER_S,
    Answer,
    Ask,
    OnRepeat,
    Outcome,
    Pause,
    exchange,
)
from delaylog.client.wire.leader_route import LeaderRoute
from delaylog.client.wire.tokens import authorization

T = TypeVar("T")
WHOLE_BYTES_MAX: Final = 1 << 20


class AsyncTransport:
    """Carries calls; opens its connections when the first one is needed."""

    def __init__(
        self,
        route: LeaderRoute,
        *,
        token: str | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        connections_max: int = 100,
        failover_s: float = FAILOVER_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        check_connection(call_timeout_s, connections_max, tls)
        self.route = route
        self._headers = authorization(token)
        self._call_timeout_s = call_timeout_s
        self._connections_max = connections_max
        self._failover_s = failover_s
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def open(self) -> aiohttp.ClientSession:
        """The session, made if there is none. ClientError when this is closed."""
        if self._session is None:
            if self._closed:
                raise ClientError("the client is closed")
            connector = aiohttp.TCPConnector(
                limit=self._connections_max, ssl=True if self._tls is None else self._tls
            )
            self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
            # aiohttp repeats GET, PUT and DELETE by itself when a kept connection breaks. A
            # repeated cancel answers differently from the first, so the caller has to see it.
            self._session._retry_connection = False
            self._loop = asyncio.get_running_loop()
        elif self._loop is not asyncio.get_running_loop():
            raise RuntimeError(
                "this client belongs to the event loop that used it first: make one in each"
            )
        return self._session

    async def close(self) -> None:
        """Drop the connections. Calls under way end with AnswerLost."""
        self._closed = True
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
        """The value of the call's answer. NotReached, AnswerLost, ApiError.

        `doubts` gets the failures after which it was asked again and may have been done before,
        `on_repeat` hears of each one after which it is asked again.
        """
        plan = exchange(call, self.route, time.monotonic, self._failover_s, doubts, on_repeat)
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
        """One exchange with one node."""
        session = self.open()
        timeout = aiohttp.ClientTimeout(total=self._call_timeout_s + ask.extra_s)
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
                return Answer(
                    response.status,
                    await response.read(),
                    response.headers.get("Retry-After"),
                    response.headers.get("Location"),
                )
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            return NotReached(f"{ask.name}: not an http address")
        except aiohttp.ClientConnectorError as error:
            return _because(NotReached(f"{ask.name}: {_why(error)}"), error)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            return _because(AnswerLost(f"{ask.name}: {error or type(error).__name__}"), error)


def _readable(body: bytes | None) -> bytes | io.BytesIO | None:
    """A large body as a file, which goes out in pieces: aiohttp warns of one that does not."""
    return io.BytesIO(body) if body is not None and len(body) > WHOLE_BYTES_MAX else body


E = TypeVar("E", NotReached, AnswerLost)


def _why(error: aiohttp.ClientConnectorError) -> str:
    """Why nobody was reached; aiohttp's words speak of TLS where there is none."""
    cause = error.os_error
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno)
    return str(cause) or str(error)


def _because(error: E, cause: BaseException) -> E:
    error.__cause__ = cause
    return error
