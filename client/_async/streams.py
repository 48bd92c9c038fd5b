"""Subscriptions of asyncio clients over a WebSocket, where the broker offers one; by hand.

A stream that cannot be opened, or ends, is followed by a long poll: it follows the leader, renews
the token and raises the errors that the loop knows. Then the stream is tried again, unless the
broker or a proxy offers none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Unpack

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, WSMsgType
from yarl import URL

from delaylog.client._async.deliveries import AsyncPolls
from delaylog.client._async.link import AsyncLink
from delaylog.client._async.message import AsyncMessage
from delaylog.client._async.transport import Watched
from delaylog.client.calls.call import request
from delaylog.client.keywords import ReceiveKeywords, SettleTimes
from delaylog.client.models import Settled
from delaylog.client.shards.receives import Wanted, process_name
from delaylog.client.shards.settlements import Share, Verb
from delaylog.client.wire.bulk import BulkError
from delaylog.client.wire.exchange import AGAIN_OF_POLL_S, AGAIN_S, LeftNode
from delaylog.client.wire.http_answer import ANSWER_BYTES_MAX
from delaylog.client.wire.stream_frames import STOP, StreamState
from delaylog.client.wire.times import split_limit
from delaylog.contract.calls.streams import CLOSED_OK, HEARTBEAT_SECONDS, KEEP_LEASES
from delaylog.contract.members import join_texts

log = logging.getLogger("delaylog.client")
AGAIN_WAIT: Final = timedelta(seconds=1)
"""The wait of the long poll between two streams."""
OFFERED_AGAIN_S: Final = 300.0
"""When a stream is tried again where none was offered: the broker may have been upgraded."""
CLOSE_S: Final = 2.0
BROKEN: Final = 1_006
"""What aiohttp calls the end of a connection without a close frame."""
_LATER: Final = frozenset({301, 302, 303, 307, 308, 401, 403, 429, 503})
"""Statuses that say nothing about whether streams are offered: the long poll deals with them."""


def deliveries(
    polls: AsyncPolls, links: Sequence[AsyncLink], topic: str, members: ReceiveKeywords
) -> AsyncPolls:
    """Where a subscription gets its messages from. Several shards are polled."""
    wanted, how_much = Wanted.split(topic, members)
    if len(links) > 1 or wanted.ids:
        return polls
    lease_ms = how_much["lease_ms"]
    assert lease_ms is not None, "a subscription has a lease"
    return _Streamed(polls, links[0], wanted, how_much["max"], lease_ms)


class _Streamed(AsyncPolls):
    """The deliveries of one subscription: by streams, and by polls between them."""

    begins_first = False

    def __init__(
        self, polls: AsyncPolls, link: AsyncLink, wanted: Wanted, messages_max: int, lease_ms: int
    ) -> None:
        super().__init__(polls.receive, polls.topic, polls.members)
        self._link = link
        self._wanted = wanted
        self._messages_max = messages_max
        self._lease_ms = lease_ms
        self._stream: AsyncStream | None = None
        self._poll_first = False
        self._not_before_s = 0.0
        self._process_id = os.getpid()

    async def fetch(self) -> list[AsyncMessage]:
        """Wait for messages; the list may be empty. Errors are those of a receive."""
        if self._process_id != os.getpid():
            # The connection is that of the parent.
            self._process_id, self._stream = os.getpid(), None
        poll_first, self._poll_first = self._poll_first, False
        if not poll_first and self._stream is None and time.monotonic() >= self._not_before_s:
            await self._open()
        self.waited_s = 0.0
        if self._stream is not None:
            found = await self._stream.fetch()
            self.waited_s = time.monotonic() - self._stream.came_s
            if found or self._stream.is_open:
                return found
            await self._stream.close(CLOSED_OK)
            if self._stream.is_unreadable:
                self._not_before_s = time.monotonic() + OFFERED_AGAIN_S
            # A connection that broke off is made again at once.
            self._poll_first = not self._stream.broke_off
            self._stream = None
            return []
        members = {**self.members, "begin": 0}
        if time.monotonic() >= self._not_before_s:
            members["wait"] = AGAIN_WAIT
        return await self.receive(self.topic, **members)

    async def arrived(self, unyielded: int) -> list[AsyncMessage]:
        """Messages that came meanwhile; `unyielded` others were not yielded yet."""
        return [] if self._stream is None else await self._stream.arrived(unyielded)

    async def stop(self) -> list[AsyncMessage]:
        """Ask for no more; returns what has arrived and was not fetched."""
        if self._stream is None or self._process_id != os.getpid():
            return []
        return await self._stream.stop()

    async def close(self) -> None:
        """Close the connection. Messages that were yielded keep their leases."""
        if self._stream is not None and self._process_id == os.getpid():
            await self._stream.close(KEEP_LEASES)

    async def _open(self) -> None:
        stream = AsyncStream(self._link, self._wanted, self._messages_max)
        try:
            await stream.open(self._lease_ms)
        except aiohttp.WSServerHandshakeError as error:
            await stream.close()
            if error.status not in _LATER:
                self._not_before_s = time.monotonic() + OFFERED_AGAIN_S
                log.info("no stream of %s (HTTP %s): long polls", self.topic, error.status)
        except (aiohttp.ClientError, LeftNode, OSError, TimeoutError, ValueError):
            # The long poll finds the same, and says it.
            await stream.close()
        except BaseException:
            await stream.close()
            raise
        else:
            self._stream = stream


class AsyncStream:
    """One WebSocket."""

    def __init__(self, link: AsyncLink, wanted: Wanted, messages_max: int) -> None:
        self._link = link
        self._wanted = wanted
        self._state = StreamState(messages_max)
        self._node = ""
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._inbox: list[AsyncMessage] = []
        self.came_s = 0.0
        """When the first message came of those that were in the inbox last."""
        self._news = asyncio.Event()
        """Set when messages have arrived, or the stream has ended."""
        self._answers: dict[int, asyncio.Future[None]] = {}
        self.is_unreadable = False
        """Whether it has ended since a frame makes no sense."""
        self._left = False
        """Whether it was given up since its node was silent and another one leads."""
        self._has_spoken = False
        """Whether a frame has arrived."""

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent and may arrive."""
        return self._reading is not None and not self._reading.done()

    @property
    def broke_off(self) -> bool:
        """Whether it has ended without a word of the broker why, after it had begun well."""
        code = None if self._socket is None else self._socket.close_code
        ended = self._has_spoken and not self.is_unreadable and code in (None, BROKEN)
        return self._left or ended

    async def open(self, lease_ms: int) -> None:
        """Connect. Raises what aiohttp raises, and LeftNode."""
        transport, wanted = self._link.transport, self._wanted
        # Refuses another event loop, and a client that is closed.
        transport.open()
        asked = request(
            "stream",
            self._link.places,
            wanted.topic,
            wanted.group or "default",
            form="bulk",
            messages=0,
            bytes=0,
            lease_ms=lease_ms,
            tags=join_texts(wanted.tags) or None,
            tags_mode=wanted.tags_mode if wanted.tags else None,
            begin=False,
            consumer=wanted.consumer or process_name(),
        )
        self._node = node = transport.route.node
        credentials = transport.route.credentials
        token = credentials.token_for(node)
        tls = credentials.tls
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=True if tls is None else tls),
            middlewares=(_refuse_redirects,),
        )
        with Watched(transport, node, AGAIN_S):
            async with asyncio.timeout(transport.times.timeout_s):
                self._socket = await self._session.ws_connect(
                    URL(node + asked.path, encoded=True),
                    headers={} if token is None else {"Authorization": f"Bearer {token}"},
                    heartbeat=HEARTBEAT_SECONDS,
                    max_msg_size=ANSWER_BYTES_MAX,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                )
        self._reading = asyncio.create_task(self._read(self._socket))

    async def fetch(self) -> list[AsyncMessage]:
        """Wait for messages; empty if the stream has ended."""
        await self._grant(0)
        while not self._inbox and self.is_open:
            self._news.clear()
            await self._news.wait()
            if not self._inbox:
                # Messages with other tags have used up credit.
                await self._grant(0)
        return self._take()

    async def arrived(self, unyielded: int) -> list[AsyncMessage]:
        """Messages that came meanwhile; gives credit for those that were yielded."""
        await self._grant(unyielded + len(self._inbox))
        # Taken only now: a loop that is cancelled releases what is in the inbox.
        return self._take()

    async def stop(self) -> list[AsyncMessage]:
        """Take the credit back; returns what has arrived."""
        if self._socket is not None and self.is_open:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await self._socket.send_bytes(STOP)
                    while not self._state.stopped and self.is_open:
                        self._news.clear()
                        await self._news.wait()
            except (TimeoutError, ConnectionError):
                # The leases of what is on its way expire.
                return self._take()
        return self._take()

    def _take(self) -> list[AsyncMessage]:
        found, self._inbox = self._inbox, []
        return found

    async def settle(
        self, verb: Verb, share: Share, **times: Unpack[SettleTimes]
    ) -> list[Settled] | None:
        """Settle messages of one lease; None if it is not known whether that was done."""
        socket = self._socket
        if socket is None or not self.is_open:
            return None
        limit_s, members = split_limit(times)
        state = self._state
        frame = state.settle(verb, share.batch.columns.lease, share.refs, **members)
        number = state.sent
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(limit_s or self._link.transport.times.timeout_s):
                await socket.send_bytes(frame)
                await answer
        except (TimeoutError, ConnectionError):
            return None
        finally:
            self._answers.pop(number, None)
        return share.results(state.gone(number))

    async def close(self, code: int = CLOSED_OK) -> None:
        """Close the connection. All callers wait until it is closed."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(code))
        await asyncio.shield(self._closing)

    async def _close(self, code: int) -> None:
        try:
            if self._socket is not None:
                # After a read that was given up this waits for no answer.
                await self._socket.close(code=code)
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait((self._reading,))
        finally:
            if self._session is not None:
                await self._session.close()

    async def _grant(self, unyielded: int) -> None:
        frame = self._state.grant(unyielded)
        if frame is not None and self._socket is not None:
            try:
                await self._socket.send_bytes(frame)
            except ConnectionError:
                # The reader notices the end too.
                return

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        told = 0
        try:
            while True:
                with Watched(self._link.transport, self._node, AGAIN_OF_POLL_S):
                    message = await socket.receive()
                if not self._inbox:
                    self.came_s = time.monotonic()
                if message.type is not WSMsgType.BINARY:
                    return
                self._has_spoken = True
                batch = self._state.read(message.data)
                if batch is not None:
                    self._inbox += await self._link.messages_of(batch, self._wanted, self)
                self._news.set()
                for number in range(told + 1, self._state.settled + 1):
                    answer = self._answers.get(number)
                    if answer is not None and not answer.done():
                        answer.set_result(None)
                told = self._state.settled
        except BulkError as error:
            log.warning("%s: a frame of the stream cannot be read: %s", self._link.name, error)
            self.is_unreadable = True
        except LeftNode:
            self._left = True
        finally:
            topic, code = self._wanted.topic, socket.close_code
            log.info("%s: the stream of %s has ended (%s)", self._link.name, topic, code)
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError("the stream has ended"))
            self._news.set()


async def _refuse_redirects(asked: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    """Let only the route choose nodes: aiohttp would follow a redirect to any address."""
    response = await send(asked)
    if 300 <= response.status < 400:
        error = aiohttp.WSServerHandshakeError(
            response.request_info, (), status=response.status, message="redirected"
        )
        response.close()
        raise error
    return response
