"""The HTTP client of pushes: one POST is one attempt, and its result an `Outcome`, never an error.

Every connection passes `_socket`, the socket factory of aiohttp's connector, which judges the
resolved address. Nothing is taken from the environment, no redirect is followed, no cookie is kept,
nothing is decompressed, and of an answer at most 64 KiB are read.

The system's resolver looks names of receivers up, on threads of their own in a bounded number.
Names that had an address at their last look-up, new names, and names that had none wait for threads
apart, so that dead name servers stop no name that works.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Callable, Collection
from enum import Enum
from functools import lru_cache, partial
from typing import Any, ClassVar, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from multidict import istr

from delaylog.broker.host.system.name_lookup import Found, look_up
from delaylog.broker.push.outcomes import ACKED, EXCERPT_BYTES, Outcome, fault, judge
from delaylog.broker.push.requests import PushRequest
from delaylog.broker.rules.push_addresses import AddressRules

# --------------------------------------------------------------------------- names of receivers

LOOKUPS_MAX: Final = 64
"""Look-ups at one time: half for names that had an address, a quarter each for new and bad ones."""
NAMES_MAX: Final = 10_000
"""Names whose last look-up is remembered."""


class _Name(Enum):
    """What the last look-up of a name that has ended says of it."""

    GOOD = 1
    """It had an address."""
    NEW = 2
    """None has ended yet."""
    BAD = 3
    """It had none."""


class Resolver(AbstractResolver):
    """Create it on the event loop."""

    def __init__(self) -> None:
        self._room = {
            _Name.GOOD: asyncio.Semaphore(LOOKUPS_MAX // 2),
            _Name.NEW: asyncio.Semaphore(LOOKUPS_MAX // 4),
            _Name.BAD: asyncio.Semaphore(LOOKUPS_MAX // 4),
        }
        self._names: dict[str, _Name] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises OSError, or RuntimeError if no thread can start."""
        room = self._room[self._names.get(host, _Name.NEW)]
        await room.acquire()
        try:
            looking = look_up(host, port, family, socket.AI_ADDRCONFIG)
        except BaseException:
            room.release()
            raise

        def ended(looked: asyncio.Future[Found]) -> None:
            room.release()
            self._remember(host, _Name.GOOD if looked.exception() is None else _Name.BAD)

        looking.add_done_callback(ended)
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in await asyncio.shield(looking)
        ]

    def _remember(self, host: str, name: _Name) -> None:
        self._names.pop(host, None)
        if len(self._names) >= NAMES_MAX:
            del self._names[next(iter(self._names))]
        self._names[host] = name

    async def close(self) -> None:
        """Nothing: lookups under way end by themselves."""


# ------------------------------------------------------------------------------------- attempts

CONNECT_SECONDS: Final = 5.0
DRAIN_SECONDS: Final = 1.0
"""After the head of an answer its body may take this long, then the connection is closed. The body
decides nothing; it is read so that the connection can be used again."""
ANSWER_BYTES_MAX: Final = 65_536
INTERIM_MAX: Final = 8
"""Interim answers (1xx) before an answer."""
KEPT_SECONDS: Final = 30.0
IDLE_MAX: Final = 1_000
NAMES_KEPT_SECONDS: Final = 30


class _Request(aiohttp.ClientRequest):
    """A request without headers that aiohttp adds by itself."""

    DEFAULT_HEADERS: ClassVar[dict[istr, str]] = {}  # type: ignore[misc]


class _Answers(ResponseHandler):
    """The answers on one connection. aiohttp reads interim ones (1xx) without end, and while many
    have arrived it does so without a pause for the event loop. It keeps any number of idle
    connections, too.
    """

    _interim = 0

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connected: set[ResponseHandler], connected_max: int
    ) -> None:
        super().__init__(loop)
        self._connected, self._connected_max = connected, connected_max

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connected.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connected.discard(self)
        super().connection_lost(exc)

    def close(self) -> None:
        # The connection is lost a turn of the loop later. Until then others must not close, too.
        self._connected.discard(self)
        super().close()

    @property
    def should_close(self) -> bool:
        """aiohttp closes a connection that should close, where it would keep it for later."""
        return len(self._connected) > self._connected_max or super().should_close

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        if self.exception() is not None:
            return
        self._interim = self._interim + 1 if data[0].code < 200 else 0
        if self._interim > INTERIM_MAX:
            self.set_exception(aiohttp.ClientPayloadError("too many interim answers (1xx)"))
        else:
            super().feed_data(data, size)


class RefusedAddressError(OSError):
    """A push would connect to an address that the rules refuse. Nothing was sent."""


class Attempts:
    """The one client of a node. Create it and use it on the event loop; `close` it at the end."""

    def __init__(
        self,
        rules: AddressRules,
        *,
        now_ms: Callable[[], int],
        own_ports: Collection[int] = (),
        tls: ssl.SSLContext | None = None,
        idle_max: int = IDLE_MAX,
    ) -> None:
        """`own_ports`: ports that this process listens on; no push reaches them here. `idle_max`:
        with more connections than this, none is kept after its attempt.
        """
        self._rules, self._now_ms, self._own_ports = rules, now_ms, own_ports
        connector = aiohttp.TCPConnector(
            # Targets have limits of their own; a shared one would let dead ones block all.
            limit=0,
            keepalive_timeout=KEPT_SECONDS,
            ssl=True if tls is None else tls,
            resolver=Resolver(),
            ttl_dns_cache=NAMES_KEPT_SECONDS,
            socket_factory=self._socket,
        )
        # aiohttp has no public way to bound interim answers, or idle connections.
        connector._factory = partial(  # type: ignore[assignment]
            _Answers, asyncio.get_running_loop(), set(), idle_max
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            request_class=_Request,
            headers={"User-Agent": "delaylog"},
        )

    async def close(self) -> None:
        """Close all connections. Attempts under way end as failed."""
        await self._session.close()

    async def post(self, url: str, request: PushRequest, timeout_ms: int) -> Outcome:
        """Send one message; raises nothing but CancelledError."""
        try:
            async with self._session.post(
                url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                timeout=_limits(timeout_ms),
            ) as answer:
                excerpt = await _drained(answer)
                if 200 <= answer.status < 300:
                    return ACKED
                return judge(answer.status, answer.headers, excerpt, self._now_ms())
        except aiohttp.ConnectionTimeoutError as error:
            return fault(error, min(timeout_ms, int(CONNECT_SECONDS * 1_000)))
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            # ValueError: an answer or an address that aiohttp or a codec could not read.
            return fault(error, timeout_ms)

    def _socket(self, info: tuple[Any, Any, int, str, Any]) -> socket.socket:
        family, kind, protocol, _, address = info
        host, port = address[0], address[1]
        refusal = self._rules.refusal(host, port)
        made = socket.socket(family, kind, protocol)
        try:
            if refusal is None and port in self._own_ports and _is_here(made, host):
                refusal = f"the address, at port {port}, is this broker itself"
            if refusal is not None:
                raise RefusedAddressError(refusal)
            made.setblocking(False)
        except BaseException:
            made.close()
            raise
        return made


@lru_cache(maxsize=64)
def _limits(timeout_ms: int) -> aiohttp.ClientTimeout:
    # aiohttp rounds long timeouts up to whole seconds, at which the attempts of a thousand targets
    # would all end in one turn of the loop.
    return aiohttp.ClientTimeout(
        total=timeout_ms / 1_000, sock_connect=CONNECT_SECONDS, ceil_threshold=math.inf
    )


async def _drained(answer: aiohttp.ClientResponse) -> bytes:
    """Read the body as far as that is cheap, else close the connection; returns its beginning."""
    excerpt = b""
    size = 0
    if answer.content.at_eof():
        return excerpt
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while chunk := await answer.content.readany():
                excerpt += chunk[: max(EXCERPT_BYTES - len(excerpt), 0)]
                size += len(chunk)
                if size > ANSWER_BYTES_MAX:
                    answer.close()
                    break
    except (aiohttp.ClientError, OSError, ValueError):
        # TimeoutError is an OSError. The head has decided already, however the body ends.
        answer.close()
    return excerpt


def _is_here(made: socket.socket, host: str) -> bool:
    """Whether an address belongs to this machine: only then can a socket be bound to it."""
    with socket.socket(made.family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
