"""Live reads: one stream of server-sent events that says how the answers of some reads change.

A browser opens at most six connections to a server, so a page has one stream for all that it shows.
The reads are repeated only while the stream is open, and only when the client has taken the event
before; what they answer is compared by its hash, so a stream keeps no answers. The time that an
answer was made at is left out of the comparison, since it is never the same. A client that reads
nothing costs one answer, and a little more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

import orjson

from delaylog.broker.calls.access.sessions import TICKET
from delaylog.broker.calls.answers import Answer, Problem, Stream
from delaylog.broker.engine.errors import QuotaRefusal
from delaylog.broker.host.waiters import NO_GROUP, OpenStreams
from delaylog.broker.streams.events import HEADERS
from delaylog.broker.streams.frames import end_event
from delaylog.broker.web.mounts import Read, ReadsPage
from delaylog.broker.web.openapi import Described, page
from delaylog.contract.calls.streams import EVENTS
from delaylog.contract.calls.table import CLOCK, OVERVIEW

if TYPE_CHECKING:
    from delaylog.broker.engine.errors import EngineError

LIVE: Final = "/v1/live"
DOC: Final = "The answers of the reads named by read=, and again when they differ."
STREAMS_MAX: Final = 100
"""Open streams of a node, such as those of dashboards: each reads again every 2 s."""
READS_MAX: Final = 20
"""Reads of one stream: twice what a page of the dashboard shows."""
EVERY_SECONDS: Final = 2.0
"""Pause between two rounds of reads; it is the heartbeat too."""
IDLE_FACTOR: Final = 5
"""Slow reads are repeated less often: a stream pauses this many times as long as they took."""
EVENT_BYTES: Final = 65_536
"""An event ends after this size, so that a stream holds one answer and not all of a round."""
_NOW: Final = re.compile(rb'"now_ms":[0-9]+')
"""In a text of an answer the quotes would be escaped."""
_TIMED: Final = (CLOCK, OVERVIEW)
"""Reads whose time is news: the clock, and rates that are drawn over time."""


class Live:
    """The live reads of one client. All methods belong to the loop's thread."""

    def __init__(
        self,
        query: str,
        read: Read,
        streams: OpenStreams,
    ) -> None:
        """While `STREAMS_MAX` live streams are open, the first piece of a further one is a
        QuotaRefusal.

        Raises a Problem for a query without reads, or with too many.
        """
        given = parse_qs(query)
        given.pop(TICKET, None)
        self._paths = list(dict.fromkeys(given.pop("read", ())))
        if given or not 1 <= len(self._paths) <= READS_MAX:
            raise Problem(
                "bad_request",
                f"live reads are 1 to {READS_MAX} parameters read=, each a path with its query",
                field="read",
            )
        self._read = read
        self._streams = streams
        self._told: dict[str, bytes] = {}
        self.ended: asyncio.Future[EngineError] = asyncio.get_running_loop().create_future()
        """Why the broker ends the stream, once it does."""

    def end(self, why: EngineError) -> None:
        """End it; its last event tells the client why."""
        if not self.ended.done():
            self.ended.set_result(why)

    def answer(self) -> Stream:
        """The answer that carries it."""
        return Stream(self._pieces(), EVENTS, HEADERS, self)

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        now_s = asyncio.get_running_loop().time
        if self._streams.of(NO_GROUP) >= STREAMS_MAX:
            raise QuotaRefusal(
                f"{STREAMS_MAX:,} live streams are open, the most that this node has; "
                "try again when one has ended"
            )
        self._streams.add(NO_GROUP, self)
        try:
            while not self.ended.done():
                began_s = now_s()
                async for members in self._round():
                    yield b"data: {%b}\n\n" % b",".join(members)
                pause_s = max(EVERY_SECONDS, IDLE_FACTOR * (now_s() - began_s))
                await asyncio.wait((self.ended,), timeout=pause_s)
            yield end_event(self.ended.result())
        finally:
            self._streams.remove(NO_GROUP, self)

    async def _round(self) -> AsyncGenerator[list[bytes], None]:
        """The members of each event of a round; of the last one, perhaps none."""
        members: list[bytes] = []
        for path in (*self._paths,):
            if sum(map(len, members)) > EVENT_BYTES:
                yield members
                members = []
            members += filter(None, (await self._look(path),))
        yield members

    async def _look(self, path: str) -> bytes:
        """The member of a read whose answer differs from the last one; null: it is refused."""
        answer = await self._read(path)
        status = answer.status if isinstance(answer, Answer) else 400
        if status == 429:
            # Beyond the caller's limit of calls: the next round begins with this one.
            return b""
        body = answer.body if isinstance(answer, Answer) and status == 200 else b"null"
        self._paths.remove(path)
        # What is refused stays refused, but what does not exist may be created.
        if status == 404 or not 400 <= status < 500:
            self._paths.append(path)
        compared = body if path.startswith(_TIMED) else _NOW.sub(b"", body)
        digest = blake2b(compared, digest_size=16).digest()
        if self._told.get(path) == digest:
            return b""
        self._told[path] = digest
        return orjson.dumps(path) + b":" + body


def _described() -> Described:
    reads = {
        "name": "read",
        "in": "query",
        "required": True,
        "description": "Paths of reads, each with its query.",
        "schema": {
            "type": "array",
            "minItems": 1,
            "maxItems": READS_MAX,
            "items": {"type": "string", "pattern": "^/"},
        },
    }
    operation = {**page("live", DOC, {200: (EVENTS, "")}), "parameters": [reads]}
    return Described({LIVE: {"get": operation}}, {})


PAGE: Final = ReadsPage(
    LIVE, lambda query, read, streams: Live(query, read, streams).answer(), _described()
)
