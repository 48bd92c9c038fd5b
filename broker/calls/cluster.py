"""Handlers of the cluster: what this node knows, handing over, changing members.

No node sends them on to another one.
"""

from __future__ import annotations

from typing import Any, NoReturn

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.shapes import (
    HAND_OVER,
    MEMBERS_ACTION,
    MEMBERS_CHANGE,
    MEMBERS_ELECTION_PORT,
    MEMBERS_NODES,
    MEMBERS_TEXTS,
    TO,
)
from delaylog.broker.standing import ClusterCalls


def _no_cluster() -> NoReturn:
    raise Problem("unknown", "this broker runs alone: it was started without --cluster")


def _the_cluster(ctx: Context) -> ClusterCalls:
    cluster = ctx.node.standing.cluster
    return _no_cluster() if cluster is None else cluster


async def get_cluster(ctx: Context) -> Answer:
    """GET /v1/cluster."""
    return ctx.answer(_the_cluster(ctx).status())


async def change_members(ctx: Context) -> Answer:
    """POST /v1/cluster/members: add, promote, remove, replace or move nodes."""
    members = MEMBERS_CHANGE.check(await ctx.members())
    action = MEMBERS_ACTION.take(members)
    limits = ctx.node.engine.limits
    nodes = MEMBERS_NODES.take(members, limits)
    if action is None or nodes is None:
        missing = "action" if action is None else "nodes"
        raise Problem("bad_request", f"{missing} is missing", field=missing)
    texts = {each.name: each.take(members) for each in MEMBERS_TEXTS}
    contact: dict[str, Any] = {name: text.decode() for name, text in texts.items() if text}
    port = MEMBERS_ELECTION_PORT.take(members, limits)
    if port is not None:
        contact["election_port"] = port
    return ctx.answer(await _the_cluster(ctx).change_members(action, nodes, contact))


async def hand_over(ctx: Context) -> Answer:
    """POST /v1/cluster/handover: have another node lead."""
    to = TO.take(HAND_OVER.check(await ctx.members()))
    return ctx.answer(await _the_cluster(ctx).hand_over(to))
