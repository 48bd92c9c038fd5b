"""Carries a client's call to its handler within the process, without a socket.

A `Call` is a method, a path and a body. It goes to the handlers of `broker/calls` that HTTP uses
too, so an embedded broker checks and answers as a server does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from delaylog.broker.calls.answer import Answer, Stream
from delaylog.broker.calls.context import JSON, Context, too_large
from delaylog.broker.calls.messages import receive_members, receive_messages, received_answer
from delaylog.broker.calls.routing import resolve
from delaylog.broker.calls.shapes import parse_receive
from delaylog.broker.embedded.hot import DirectMerger, receive_or_wait
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.client.calls import Call

if TYPE_CHECKING:
    from delaylog.broker.calls.singles import SingleMerger
    from delaylog.broker.node import Node

Decoded = TypeVar("Decoded")


class DirectContext(Context):
    """A call whose body is in memory."""

    __slots__ = ("_wire",)

    def __init__(self, node: EmbeddedNode, call: Call[Decoded], query: str) -> None:
        form = call.form
        headers = {
            **call.headers,
            "Content-Type": form.content_type or JSON,
            "Accept": form.accept or JSON,
        }
        # Handlers use only what these share with a server's node and merger; a test calls every
        # handler with them.
        merger = cast("SingleMerger", DirectMerger(node))
        super().__init__(cast("Node", node), merger, headers, query)
        self._wire = call.body or b""

    async def _body(self, size_max: int) -> bytes:
        if len(self._wire) > size_max:
            raise too_large(size_max)
        return self._wire


async def carry(node: EmbeddedNode, call: Call[Decoded]) -> Decoded:
    """Carry a call out. Raises Problem, or the errors of the engine and of storage."""
    path, _, query = call.path.partition("?")
    route = resolve(path, call.method, node.engine.state.topics)
    ctx = DirectContext(node, call, query)
    ctx.about(route)
    if query and not route.call.query:
        ctx.asked()
    answered: Answer | Stream
    if route.handler is receive_messages:
        # The handler would wait on an event loop; here the steps of `hot` wait.
        answered = await _receive(node, ctx)
    else:
        answered = await route.handler(ctx)
    assert isinstance(answered, Answer), "no client of an embedded broker asks for a stream"
    return call.decoded(answered.body)


async def _receive(node: EmbeddedNode, ctx: DirectContext) -> Answer:
    call = parse_receive(await receive_members(ctx), node.engine.limits)
    return received_answer(ctx, call, await receive_or_wait(node, ctx.topic_key, call))
