"""Handlers of the broker's clock: read it, and accept a backward step."""

from __future__ import annotations

from typing import Any

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem
from delaylog.broker.host.node import Node


def _members(node: Node) -> dict[str, Any]:
    clock = node.clock
    now_ms = clock.now_ms()
    return {
        "now_ms": now_ms,
        "wall_ms": clock.wall_ms,
        "held_ms": clock.ahead_ms,
        "steps": clock.steps,
    }


async def get_clock(ctx: Context) -> Answer:
    """GET /v1/clock."""
    return ctx.answer(_members(ctx.node))


async def accept_clock(ctx: Context) -> Answer:
    """POST /v1/clock: follow the wall clock, which was set back and is right."""
    if not (await ctx.values())["accept"]:
        raise Problem(
            "bad_request", "give accept: true to confirm that wall time is right", field="accept"
        )
    if ctx.node.role.cluster is not None:
        # Each node has a separate clock, and the tick of a cluster never goes back.
        raise Problem(
            "conflict",
            "a cluster's time cannot be set back: it stops until wall time has caught up "
            f"({ctx.node.clock.ahead_ms} ms on the leader); nothing was changed",
        )
    step_ms = await ctx.node.accept_clock()
    return ctx.answer({**_members(ctx.node), "accepted_ms": step_ms})
