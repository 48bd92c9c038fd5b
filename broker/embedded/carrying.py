"""Carries a client's call to its handler within the process, without a socket.

A `Call` is a method, a path and a body. It goes to the handlers of `broker/calls` that HTTP uses
too, so an embedded broker checks and answers as a server does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import JSON, BufferedContext
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.routing import resolve
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.client.calls.call import Call
from delaylog.contract.calls.access import OF_ACCESS
from delaylog.contract.calls.targets import OF_TARGETS

OF_SERVERS: Final = frozenset(
    {*(call.name for call in (*OF_ACCESS, *OF_TARGETS)), "listAllTargets", "reload", "stream"}
)
"""Calls that only a broker with other callers than its own program can answer, or that pushes."""
Decoded = TypeVar("Decoded")


async def carry(node: EmbeddedNode, call: Call[Decoded]) -> Decoded:
    """Run a call. Raises Problem, or the errors of the engine and of storage."""
    headers = {
        **call.headers,
        "Content-Type": call.form.content_type or JSON,
        "Accept": call.form.accept or JSON,
    }
    answered = await answer_to(node, call.method, call.path, headers, call.body or b"")
    return call.decoded(answered.body)


async def answer_to(
    node: EmbeddedNode, method: str, path_qs: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    """The answer to a request for a path with its query. Raises as `carry` does."""
    path, _, query = path_qs.partition("?")
    route = resolve(path, method, node.engine.state.topics)
    if route.call.name in OF_SERVERS:
        raise Problem(
            "unknown",
            "an embedded broker has no principals, no streams and no files to read again, and "
            "pushes nothing",
        )
    ctx = BufferedContext(node, headers, query, body)
    ctx.about(route.call, route.topic_key, route.params)
    ctx.reads = route.call.reads
    if query and not route.call.query:
        ctx.query_values()
    answered = await route.handler(ctx)
    assert isinstance(answered, Answer), "no client of an embedded broker asks for a stream"
    return answered
