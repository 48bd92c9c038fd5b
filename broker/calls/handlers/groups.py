"""Handlers of groups, and of operations on a whole topic: purge, pause, resume."""

from __future__ import annotations

from typing import Any

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.handlers.topics import group_counts
from delaylog.broker.calls.named_groups import named_in
from delaylog.broker.calls.places import group_of, permit_group, the_topic
from delaylog.broker.calls.problems import Problem
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.topics.commands import drop_group, pause, purge, put_group
from delaylog.broker.engine.topics.groups import DEFAULT_NAME, Group


def _describe(topic: Topic, group: Group) -> dict[str, Any]:
    return {
        "group": group.name,
        "topic": topic.name,
        "namespace": topic.namespace,
        "ephemeral": group.ephemeral,
        "counts": group_counts(group),
        "delivered": group.counts.delivered,
    }


def _the_group(ctx: Context) -> tuple[Topic, Group]:
    """The topic and the group of the path, or 404."""
    topic, name = the_topic(ctx), ctx.params["group"]
    permit_group(ctx, name)
    return topic, named_in(topic, name)


async def list_groups(ctx: Context) -> Answer:
    """GET …/groups."""
    topic = the_topic(ctx)
    groups = [
        _describe(topic, group)
        for group in topic.groups.values()
        if ctx.caller.may("read", ctx.topic_key, group.name)
    ]
    return ctx.answer({"groups": groups})


async def get_group(ctx: Context) -> Answer:
    """GET …/groups/{g}."""
    return ctx.answer(_describe(*_the_group(ctx)))


async def put_group_(ctx: Context) -> Answer:
    """PUT …/groups/{g}: create a group, which sees messages sent from now on."""
    values = await ctx.values()
    name = ctx.params["group"]
    if name == DEFAULT_NAME:
        raise Problem("conflict", "the topic's setting default_group controls the default group")
    node = ctx.node
    state, now_ms = node.engine.state, node.clock.now_ms()
    topic = node.engine.make_topic(ctx.topic_key[1], now_ms, ctx.topic_key[0])
    known = topic.group(name) is not None
    group = put_group(state, topic, name, now_ms, ephemeral=values["ephemeral"])
    return await ctx.durable_answer(_describe(topic, group), status=200 if known else 201)


async def delete_group(ctx: Context) -> Answer:
    """DELETE …/groups/{g}: messages that only this group had not consumed end."""
    topic, group = _the_group(ctx)
    node = ctx.node
    drop_group(node.engine.state, topic, group, node.clock.now_ms())
    return await ctx.durable_answer({"result": "done"})


async def purge_topic(ctx: Context) -> Answer:
    """POST …/purge: end waiting and ready messages, in one group or in all."""
    values = await ctx.values()
    name = None
    if values["group"] is not None:
        name = group_of(ctx, values)
    else:
        permit_group(ctx, None)
    topic = the_topic(ctx)
    groups = list(topic.groups.values()) if name is None else [named_in(topic, name)]
    force, erase = values["force"], values["erase"]
    if erase and (not force or len(groups) < len(topic.groups)):
        what = "erase needs force: true" if not force else "erase applies to all groups of a topic"
        raise Problem("bad_request", f"{what}; see erasing in docs/BACKUP.md", field="erase")
    node = ctx.node
    state = node.engine.state
    count = ctx.count = purge(state, topic, groups, node.clock.now_ms(), force=force, erase=erase)
    return await ctx.durable_answer({"result": "done", "purged": count})


async def pause_topic(ctx: Context) -> Answer:
    """POST …/pause, …/resume: stop or continue deliveries; sends and settles always go on."""
    await ctx.values()
    topic = the_topic(ctx)
    node = ctx.node
    pause(node.engine.state, topic, node.clock.now_ms(), paused=ctx.params["action"] == "pause")
    node.wake_ready()
    return await ctx.durable_answer({"result": "done", "paused": topic.paused})
