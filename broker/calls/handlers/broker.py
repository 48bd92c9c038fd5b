"""Handlers of calls about the broker: its clock, hold, archive, cluster, and configured files.

Every node handles the calls of the cluster itself; none redirects them to the leader.
"""

from __future__ import annotations

from typing import Any

from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.context import Context
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.upkeep import archive
from delaylog.broker.engine.upkeep.archive import NextHour, members, next_hour
from delaylog.broker.engine.views.counts import Pending
from delaylog.broker.host.node import Node
from delaylog.broker.host.node_role import ClusterCalls
from delaylog.broker.host.watch.reloader import ReloadError
from delaylog.storage.layout import HOUR_MS
from delaylog.storage.work import Work

# ---------------------------------------------------------------------------------- the archive


async def _archive_members(node: Node) -> dict[str, Any]:
    state, now_ms = node.engine.state, node.clock.now_ms()
    following: list[NextHour | None] = []

    def search() -> Work:
        following.append((yield from next_hour(state, now_ms)))

    await node.run(search())
    found = archive.archive_status(state, now_ms)
    return {
        "hold": found.hold,
        "released_through_ms": found.released * HOUR_MS,
        "archivable_through_ms": found.archivable * HOUR_MS,
        "hours": found.held_hours,
        "oldest_ms": None if found.oldest is None else found.oldest * HOUR_MS,
        "next": members(following[0]),
    }


async def get_archive(ctx: Context) -> Answer:
    """GET /v1/archive."""
    # Clients act on this answer, so it waits until its state is durable.
    return await ctx.durable_answer(await _archive_members(ctx.node))


async def release_archive(ctx: Context) -> Answer:
    """POST /v1/archive/release: let hours be removed; a repeat is answered with `already`."""
    values, node = await ctx.values(), ctx.node
    state, copy = node.engine.state, archive.ArchiveCopy(values["position"], values["rows"])
    done = archive.release(state, values["through_ms"], node.clock.now_ms(), copy)
    answer = {"result": "done" if done else "already", **await _archive_members(node)}
    await node.role.safe(state.position, None)
    return ctx.answer(answer)


# ------------------------------------------------------------------------------------ the clock


def _clock_members(node: Node) -> dict[str, Any]:
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
    return ctx.answer(_clock_members(ctx.node))


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
    return ctx.answer({**_clock_members(ctx.node), "accepted_ms": step_ms})


# ---------------------------------------------------------------------------------- the cluster


def _the_cluster(ctx: Context) -> ClusterCalls:
    cluster = ctx.node.role.cluster
    if cluster is None:
        raise Problem("unknown", "this broker runs alone: it was started without --cluster")
    return cluster


async def get_cluster(ctx: Context) -> Answer:
    """GET /v1/cluster."""
    return ctx.answer(_the_cluster(ctx).status())


async def change_members(ctx: Context) -> Answer:
    """POST /v1/cluster/members: add, promote, remove, replace or move nodes."""
    values = await ctx.values()
    action, nodes = values.pop("action"), values.pop("nodes")
    contact = {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in values.items()
        if value
    }
    return ctx.answer(await _the_cluster(ctx).change_members(action, nodes, contact))


async def hand_over(ctx: Context) -> Answer:
    """POST /v1/cluster/handover: have another node lead."""
    to = (await ctx.values())["to"]
    return ctx.answer(await _the_cluster(ctx).hand_over(to))


# ------------------------------------------------------------------------------------- the hold


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


# ----------------------------------------------------------------------------- configured files


async def reload_files(ctx: Context) -> Answer:
    """POST /v1/reload: read certificates and other configured files again."""
    try:
        names = await ctx.node.reloader.reload()
    except ReloadError as error:
        raise Problem("conflict", str(error)) from None
    return ctx.answer({"reloaded": names})
