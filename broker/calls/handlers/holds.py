"""Handlers of the broker's hold: show it, set it, and release it."""

from __future__ import annotations

from typing import Any

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.views.pending import Pending


async def _describe(ctx: Context) -> dict[str, Any]:
    """The hold, and what a release would set going in the topics that the caller may read."""
    node = ctx.node
    state = node.engine.state
    hold = state.holding.now
    if hold is None:
        counts = {**dict.fromkeys(("due", "pushes", "firings"), 0), "partial": False}
        return {"held": False, "since_ms": None, "note": None, **counts}

    def shown(topic: Topic) -> bool:
        return ctx.caller.may("read", (topic.namespace, topic.name))

    pending = Pending(state, node.clock.now_ms(), shown)
    await node.run(pending.work())
    return {
        "held": True,
        "since_ms": hold.since_ms,
        "note": hold.note,
        "due": pending.due,
        "pushes": pending.pushes,
        "firings": pending.firings,
        "partial": pending.partial,
    }


async def get_hold(ctx: Context) -> Answer:
    """GET /v1/hold."""
    return ctx.answer(await _describe(ctx))


async def put_hold(ctx: Context) -> Answer:
    """PUT /v1/hold: deliver, push and fire nothing from now on."""
    node, note = ctx.node, (await ctx.values())["note"]
    done = node.engine.hold((note or b"").decode(), node.clock.now_ms())
    node.hold_changed()
    return await _changed(ctx, await _describe(ctx), done=done)


async def release_hold(ctx: Context) -> Answer:
    """DELETE /v1/hold: deliver, push and fire again; answers what that has set going."""
    node, before = ctx.node, await _describe(ctx)
    done = node.engine.release_hold(node.clock.now_ms())
    node.hold_changed()
    return await _changed(ctx, {**before, "held": False}, done=done)


async def _changed(ctx: Context, members: dict[str, Any], *, done: bool) -> Answer:
    return await ctx.durable_answer({**members, "result": "done" if done else "already"})
