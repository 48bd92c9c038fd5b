"""Handlers of the cluster: status, handing over, changing members.

Every node handles these calls itself; none redirects them to the leader.
"""

from __future__ import annotations

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem
from delaylog.broker.host.node_role import ClusterCalls


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
