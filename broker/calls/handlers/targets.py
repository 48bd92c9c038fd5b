"""Handlers of push targets: list, read, create or replace, change, drop.

A secret is in the answer of the call for which the broker made it, and nowhere else: not in another
answer, an error, a log or the audit log, which get its digest or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import Any, Final

from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.places import named_in, permit_group, the_topic
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.push.commands import drop_target, put_target, the_target
from delaylog.broker.engine.push.targets import BY_OPERATOR, WELL, GroupKey, Health, Target
from delaylog.broker.engine.topics.groups import DEFAULT_NAME, Group
from delaylog.broker.rules.push_addresses import check_url, refused_literal
from delaylog.broker.rules.push_signatures import make_secret, parse_secret, shown
from delaylog.contract.calls.targets import PUT_TARGET, SECRETS_MAX, UPDATE_TARGET, URL
from delaylog.contract.members import MemberError, Shape
from delaylog.extras import PUSH, missing_part

SECRET_BYTES: Final = 32
_STEP: Final = 500
"""Targets that are looked at in one turn: about 1 ms."""
_PLAIN: Final = ("mode", "timeout_ms", "concurrency", "per_second")


async def list_targets(ctx: Context) -> Answer:
    """GET …/targets: those of the groups that the caller may administer."""
    topic, table = the_topic(ctx), ctx.node.engine.state.targets.targets
    groups = [
        group
        for number, group in topic.groups.items()
        if (topic.number, number) in table and ctx.caller.may("admin", ctx.topic_key, group.name)
    ]
    return ctx.answer({"targets": [_shown(ctx, topic, group) for group in groups]})


async def list_all_targets(ctx: Context) -> Answer:
    """GET /v1/targets: those of all topics, those that fail first."""
    limit, node = ctx.query_values()["limit"], ctx.node
    now_ms, table = node.clock.now_ms(), node.engine.state.targets
    found: list[tuple[bool, str, str, GroupKey]] = []
    for at, key in enumerate(list(table.targets), 1):
        if at % _STEP == 0:
            await node.pause()
        place = _named(ctx, key)
        if place is not None:
            health = node.push_health(key) or table.healths.get(key, WELL)
            found.append((health.state(now_ms) == "closed", place[0].name, place[1].name, key))
    # One may have been dropped during a pause.
    first = [_named(ctx, key) for *_, key in nsmallest(limit, found)]
    return ctx.answer({"targets": [_shown(ctx, *place) for place in first if place is not None]})


def _named(ctx: Context, key: GroupKey) -> tuple[Topic, Group] | None:
    """The topic and the group of a target; None if there is no such target."""
    state = ctx.node.engine.state
    topic = state.by_number.get(key[0])
    group = None if topic is None else topic.groups.get(key[1])
    if topic is None or group is None or key not in state.targets.targets:
        return None
    return topic, group


async def get_target(ctx: Context) -> Answer:
    """GET …/groups/{g}/target."""
    return ctx.answer(_shown(ctx, *_place(ctx)))


def _shown(ctx: Context, topic: Topic, group: Group) -> dict[str, Any]:
    """A target as it is now. Raises a Problem (404) if the group has none."""
    target, stored = the_target(ctx.node.engine.state, topic, group)
    health = ctx.node.push_health((topic.number, group.number)) or stored
    return _describe(ctx, topic, group, target, health)


async def put_target_(ctx: Context) -> Answer:
    """PUT …/groups/{g}/target: create a target, or replace all but its secrets."""
    values, _ = await _given(ctx, PUT_TARGET)
    node, key = ctx.node, ctx.topic_key
    state, now_ms = node.engine.state, node.clock.now_ms()
    url = _url(ctx, values)
    secrets = _secrets(values)
    topic = state.topics.get(key)
    if topic is None and ctx.params["group"] == DEFAULT_NAME:
        # A new topic has no other group.
        topic = node.engine.make_topic(key[1], now_ms, key[0])
    topic = topic or the_topic(ctx)
    group = _group(ctx, topic)
    old = state.targets.targets.get((topic.number, group.number))
    made = None
    if not secrets and old is not None:
        secrets = old.secrets
    elif not secrets:
        made = _new_secret(ctx)
        secrets = (made,)
    target = replace(Target(url, secrets), **_plain(values, values))
    health = put_target(state, topic, group, target, now_ms)
    answer = _describe(ctx, topic, group, target, health, made)
    return await ctx.durable_answer(answer, status=200 if old else 201)


async def update_target(ctx: Context) -> Answer:
    """PATCH …/groups/{g}/target."""
    values, given = await _given(ctx, UPDATE_TARGET)
    topic, group = _place(ctx)
    state, now_ms = ctx.node.engine.state, ctx.node.clock.now_ms()
    target, health = the_target(state, topic, group)
    target = replace(target, **_plain(values, given))
    if URL.name in given:
        if values[URL.name] is None:
            raise MemberError("url cannot be null: a target has one", field=URL.name)
        target = replace(target, url=_url(ctx, values))
    secrets, made = _secrets(values) or target.secrets, None
    if values["rotate"]:
        made = _new_secret(ctx)
        secrets = (made, *secrets)[:SECRETS_MAX]
    target = replace(target, secrets=secrets)
    kept: Health | None = health
    if values["push"] == "off":
        kept = replace(health, disabled=BY_OPERATOR, reason="")
    elif values["push"] == "on":
        kept = WELL
    elif URL.name in given:
        kept = None
    health = put_target(state, topic, group, target, now_ms, health=kept)
    return await ctx.durable_answer(_describe(ctx, topic, group, target, health, made))


async def delete_target(ctx: Context) -> Answer:
    """DELETE …/groups/{g}/target."""
    topic, group = _place(ctx)
    drop_target(ctx.node.engine.state, topic, group, ctx.node.clock.now_ms())
    return await ctx.durable_answer({"result": "done"})


def _place(ctx: Context) -> tuple[Topic, Group]:
    topic = the_topic(ctx)
    return topic, _group(ctx, topic)


def _group(ctx: Context, topic: Topic) -> Group:
    permit_group(ctx, ctx.params["group"])
    return named_in(topic, ctx.params["group"])


async def _given(ctx: Context, shape: Shape) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """All members, checked, and those that the body has. Only the latter are noted, without what is
    secret: also a URL may contain a password of its receiver.
    """
    raw = await ctx.members()
    values = shape.take(raw, ctx.node.engine.limits)
    ctx.note({name: values[name] for name in raw if name not in ("secrets", URL.name)})
    return values, raw


def _plain(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The plain members that the body has; null: the default."""
    defaults = Target("", ())
    return {
        name: getattr(defaults, name) if values[name] is None else values[name]
        for name in _PLAIN
        if name in given
    }


def _url(ctx: Context, values: Mapping[str, Any]) -> str:
    rules = ctx.node.push_rules
    if rules is None:
        raise Problem("conflict", missing_part(PUSH))
    try:
        url = check_url(values[URL.name].decode())
    except ValueError as error:
        raise MemberError(f"url: {error}", field=URL.name) from None
    refusal = refused_literal(url, rules)
    if refusal is not None:
        raise MemberError(f"url: {refusal}", field=URL.name)
    return url


def _secrets(values: Mapping[str, Any]) -> tuple[str, ...]:
    secrets = tuple(values["secrets"] or ())
    for at, text in enumerate(secrets):
        try:
            parse_secret(text)
        except ValueError as error:
            raise MemberError(f"secrets[{at}]: {error}", field="secrets") from None
    return secrets


def _new_secret(ctx: Context) -> str:
    return make_secret(ctx.node.machine.random_bytes(SECRET_BYTES))


def _describe(
    ctx: Context,
    topic: Topic,
    group: Group,
    target: Target,
    health: Health,
    secret: str | None = None,
) -> dict[str, Any]:
    """The members of a target in an answer. `secret`: one that the broker has just made."""
    return {
        "topic": topic.name,
        "namespace": topic.namespace,
        "group": group.name,
        "url": target.url,
        "mode": target.mode,
        "timeout_ms": target.timeout_ms,
        "concurrency": target.concurrency,
        "per_second": target.per_second,
        "digests": [shown(each) for each in target.secrets],
        "secret": secret,
        "state": health.state(ctx.node.clock.now_ms()),
        **health.as_dict(),
    }
