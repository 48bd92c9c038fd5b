"""Carries a call of the API to its handler, with no socket in between.

A client's `Call` is a method, a path and a body; what a broker does with it over HTTP is done with
it here, by the same handlers, so an embedded broker judges and answers as one that serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import orjson
from aiohttp import web

from delaylog.broker.embedded.hot import DirectMerger, receive_or_wait
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.broker.web.context import BULK, JSON, Context
from delaylog.broker.web.messages import receive_members, receive_messages, received_answer
from delaylog.broker.web.operations import TAKES_QUERY
from delaylog.broker.web.problems import Problem
from delaylog.broker.web.routing import resolve
from delaylog.broker.web.shapes import parse_receive
from delaylog.client.calls import Call

if TYPE_CHECKING:
    from delaylog.broker.node import Node
    from delaylog.broker.web.singles import SingleMerger

Answer = TypeVar("Answer")


class DirectAnswer(web.StreamResponse):
    """What a handler answered, for nobody but the caller."""

    def __init__(self, wire: bytes) -> None:
        # The base class's own set-up builds headers that nobody would read.
        self.wire = wire


class _Headers:
    """Of a request: what a handler asks for."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers


class DirectContext(Context):
    """One call, read and answered in memory."""

    __slots__ = ("_bulk", "_type", "_wire")

    def __init__(self, node: EmbeddedNode, call: Call[Answer], query: str) -> None:
        # To handlers these are what they are to them in a broker that serves; a test has each of
        # them called here.
        super().__init__(
            cast("Node", node),
            cast("SingleMerger", DirectMerger(node)),
            cast(web.BaseRequest, _Headers(dict(call.headers))),
            query,
        )
        self._type = call.form.content_type or JSON
        self._bulk = call.form.accept == BULK
        self._wire = call.body or b""

    @property
    def content_type(self) -> str:
        """Media type of the body."""
        return self._type

    @property
    def accepts_bulk(self) -> bool:
        """Whether the answer shall be a bulk body."""
        return self._bulk

    @property
    def packed(self) -> bool:
        """Answers are JSON where they are no bulk bodies."""
        return False

    async def body(self, bytes_max: int | None = None) -> bytes:
        """The whole body."""
        size_max = bytes_max or self.node.engine.limits.request_bytes_max
        if len(self._wire) > size_max:
            raise Problem("too_large", f"a request has at most {size_max} bytes")
        return self._wire

    def answer(self, members: object, status: int = 200) -> web.StreamResponse:  # noqa: ARG002
        """An answer in JSON."""
        return DirectAnswer(orjson.dumps(members))

    def bulk_answer(self, body: bytes) -> web.StreamResponse:
        """A bulk answer."""
        return DirectAnswer(body)


async def carry(node: EmbeddedNode, call: Call[Answer]) -> Answer:
    """Carry a call out. Raises Problem, or what the layers below refuse it with."""
    path, _, query = call.path.partition("?")
    route = resolve(path, call.method, node.engine.state.topics)
    ctx = DirectContext(node, call, query)
    ctx.topic_key = route.topic_key
    ctx.params.update(route.params)
    if query and route.handler not in TAKES_QUERY:
        ctx.query()
    handler = route.handler
    if handler is receive_messages:
        # Its waiters wait on an event loop.
        answered = await _receive(node, ctx)
    else:
        answered = await handler(ctx)
    assert isinstance(answered, DirectAnswer), "a handler answers by its context"
    return call.decoded(answered.wire)


async def _receive(node: EmbeddedNode, ctx: DirectContext) -> web.StreamResponse:
    call = parse_receive(await receive_members(ctx), node.engine.limits)
    return received_answer(ctx, call, await receive_or_wait(node, ctx.topic_key, call))
