"""Handlers of the cluster: what this node knows of it, and handing over. No node sends them on."""

from __future__ import annotations

from typing import NoReturn

from aiohttp import web

from delaylog.broker.standing import ClusterCalls
from delaylog.broker.web.context import Context
from delaylog.broker.web.problems import Problem
from delaylog.broker.web.shapes import HAND_OVER, TO


def _no_cluster() -> NoReturn:
    raise Problem("unknown", "this broker runs alone: it was started without --cluster")


def _the_cluster(ctx: Context) -> ClusterCalls:
    cluster = ctx.node.standing.cluster
    return _no_cluster() if cluster is None else cluster


async def get_cluster(ctx: Context) -> web.StreamResponse:
    """GET /v1/cluster."""
    return ctx.answer(_the_cluster(ctx).status())


async def hand_over(ctx: Context) -> web.StreamResponse:
    """POST /v1/cluster/handover: have another node lead."""
    to = TO.take(HAND_OVER.check(await ctx.members()))
    return ctx.answer(await _the_cluster(ctx).hand_over(to))
