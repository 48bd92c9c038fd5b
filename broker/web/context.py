"""What a handler works with: one request, read and decoded once, and the node behind it."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import parse_qs

import msgpack
import orjson
from aiohttp import web

from delaylog.broker.node import Node
from delaylog.broker.waiters import TopicKey
from delaylog.broker.web.problems import Problem
from delaylog.broker.web.singles import SingleMerger

BULK: Final = "application/vnd.delaylog.batch"
MSGPACK: Final = "application/msgpack"
JSON: Final = "application/json"
READ_SECONDS_MAX: Final = 30
"""A request's body arrives within this time, or the call ends with 408."""


class Context:
    """One request."""

    __slots__ = ("merger", "node", "params", "query_text", "request", "topic_key")

    def __init__(
        self, node: Node, merger: SingleMerger, request: web.BaseRequest, query_text: str
    ) -> None:
        self.node = node
        self.merger = merger
        self.request = request
        self.query_text = query_text
        self.params: dict[str, str] = {}
        self.topic_key: TopicKey = ("default", "")

    @property
    def content_type(self) -> str:
        """Media type of the body, JSON when absent or text."""
        raw = self.request.headers.get("Content-Type")
        if raw is None:
            return JSON
        kind = raw.partition(";")[0].strip().lower()
        return JSON if not kind or kind.startswith("text/") else kind

    @property
    def accepts_bulk(self) -> bool:
        """Whether the answer shall be a bulk body."""
        return BULK in self.request.headers.get("Accept", "")

    @property
    def packed(self) -> bool:
        """Whether the answer shall be msgpack."""
        accept = self.request.headers.get("Accept")
        if accept is None or accept == "*/*":
            return self.content_type == MSGPACK
        return MSGPACK in accept

    async def body(self) -> bytes:
        """The whole body, within a time."""
        request = self.request
        if request.content.is_eof():
            return await request.read()
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                return await request.read()
        except TimeoutError:
            raise Problem(
                "timeout", f"the body did not arrive within {READ_SECONDS_MAX} s"
            ) from None

    async def members(self) -> Any:
        """The body as JSON or msgpack; {} when empty."""
        kind = self.content_type
        raw = await self.body()
        if not raw:
            return {}
        if kind == JSON:
            try:
                return orjson.loads(raw)
            except orjson.JSONDecodeError as error:
                raise Problem("bad_request", f"the body is not JSON: {error}") from None
        if kind == MSGPACK:
            try:
                return msgpack.unpackb(raw, raw=False, strict_map_key=True)
            except (ValueError, msgpack.UnpackException, TypeError, RecursionError) as error:
                raise Problem("bad_request", f"the body is not msgpack: {error}") from None
        raise Problem("unsupported", f"content type {kind!r} is not read here; use {JSON}")

    def query(self, known: tuple[str, ...]) -> dict[str, str]:
        """Query parameters; unknown ones are refused."""
        out = {}
        for name, values in parse_qs(self.query_text, keep_blank_values=True).items():
            if name not in known:
                raise Problem("bad_request", f"unknown query parameter {name!r}", field=name[:64])
            out[name] = values[-1]
        return out

    def answer(self, members: Any, status: int = 200) -> web.Response:
        """An answer in the form the caller reads."""
        if self.packed:
            return web.Response(
                body=msgpack.packb(members), status=status, content_type=MSGPACK
            )
        return web.Response(body=orjson.dumps(members), status=status, content_type=JSON)

    @staticmethod
    def bulk_answer(body: bytes) -> web.Response:
        """A bulk answer."""
        return web.Response(body=body, content_type=BULK)
