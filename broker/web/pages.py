"""The pages for operations: health, readiness, metrics, the OpenAPI document, and the root.

`openapi.PAGES` declares which right each of them needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import orjson

from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.context import JSON, Context
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.host.watch.metrics import Metrics
from delaylog.broker.web.mounts import Mounts
from delaylog.broker.web.openapi import openapi_document


def pages(
    node: ServingNode, metrics: Metrics, mounts: Mounts
) -> dict[str, Callable[[Context], Awaitable[Answer]]]:
    """The handlers of one node, by path."""

    async def health(ctx: Context) -> Answer:
        return ctx.answer({"status": "ok"})

    async def readiness(ctx: Context) -> Answer:
        known = node.access.authenticator.is_known(ctx.headers.get("Authorization"))
        try:
            members = _readiness(node)
        except Problem:
            if known:
                raise
            raise Problem("not_ready", "this node is not ready; a token shows why") from None
        status = "ready" if node.engine.state.holding.now is None else "held"
        return ctx.answer({"status": status, **(members if known else {})})

    async def metrics_text(ctx: Context) -> Answer:
        return Answer(*await metrics.text(ctx.headers.get("Accept", "")))

    @cache
    def document() -> bytes:
        described = openapi_document(node.engine.limits, mounts.described())
        return orjson.dumps(described, option=orjson.OPT_INDENT_2)

    async def openapi(_ctx: Context) -> Answer:
        return Answer(document(), JSON)

    async def root(ctx: Context) -> Answer:
        return ctx.answer({"name": "delaylog"})

    return {
        "/healthz": health,
        "/readyz": readiness,
        "/metrics": metrics_text,
        "/openapi.json": openapi,
        "/": root,
    }


def _readiness(node: ServingNode) -> dict[str, Any]:
    """The condition of the node. Raises a Problem, which may name other nodes, if not ready."""
    if node.stopping:
        raise Problem("not_ready", "the node is stopping")
    if node.suspended:
        raise Problem("not_ready", "this node is reloading its data")
    members: dict[str, Any] = {
        "disk_full": node.refusing_sends,
        "clock_held_ms": node.clock.ahead_ms,
    }
    cluster = node.role.cluster
    if cluster is not None:
        why = cluster.not_ready()
        if why is not None:
            raise Problem("not_ready", why)
        status = cluster.status()
        members["role"] = status["role"]
        members["leader"] = status["leader"] and status["leader"]["http"]
    return members
