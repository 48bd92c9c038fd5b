"""Handlers of topics and their groups: list, read, create, change, delete, stats, overview.

Operations on a whole topic are here too: purge, pause, resume.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final

from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.places import group_of, named_in, permit_group, seen_or_blank, the_topic
from delaylog.broker.engine.late.causes import bounded_by
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.topics.commands import drop_group, drop_topic, pause, purge, put_group
from delaylog.broker.engine.topics.groups import DEFAULT_NAME, Group
from delaylog.broker.engine.topics.settings import TopicSettings, parse_settings
from delaylog.broker.engine.views.counts import WaitingCounts
from delaylog.broker.engine.views.list_page import Effort, ListQuery
from delaylog.broker.engine.views.listing import Listing
from delaylog.broker.engine.views.oldest_due import oldest_due_ms
from delaylog.broker.engine.views.overview import Overview
from delaylog.broker.engine.watch.histogram import BOUNDS_MS
from delaylog.contract.calls.shapes import SETTINGS, TOPIC_SORTS
from delaylog.storage.layout import MessageState

# --------------------------------------------------------------------------------------- topics

CONSUMERS_MAX: Final = 100
"""Consumers that the counts of a topic name, those with the most messages under lease."""
_BY_NAME: Final = TOPIC_SORTS[0]
_STEP: Final = 1_000
"""Topics that are searched or sorted in one turn: about 1 ms."""
_DESCRIBED: Final = 250
"""Topics that are described in one turn: about 1 ms."""
_FIRST: Final = ListQuery(frozenset({MessageState.WAITING, MessageState.READY}), limit=1)


def group_counts(group: Group) -> dict[str, int]:
    """Messages of a group by state. A due one that is still being loaded counts as waiting."""
    counts = group.counts
    ready = min(group.ready_count, max(counts.living - counts.leased, 0))
    return {
        "waiting": max(counts.living - counts.leased - ready, 0),
        "ready": ready,
        "leased": counts.leased,
        "acked": counts.acked,
        "expired": counts.expired,
        "dead": counts.dead,
        "cancelled": counts.cancelled,
        "replaced": counts.replaced,
    }


def _describe_topic(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "namespace": topic.namespace,
        "settings": _settings(topic.settings),
        "paused": topic.paused,
        "erasing": topic.erasing,
        "groups": [group.name for group in topic.groups.values()],
        "counts": group_counts(topic.default),
    }


@lru_cache(1_024)
def _settings(settings: TopicSettings) -> dict[str, Any]:
    """Settings as members; cached, because most topics have the same settings."""
    return settings.as_dict()


async def list_topics(ctx: Context) -> Answer:
    """GET /v1/topics: a page of topics, by name, or the most messages in a state first."""
    values = ctx.query_values()
    namespace, prefix = ctx.topic_key[0], (values["prefix"] or b"").decode()
    part = (values["contains"] or b"").decode()

    def wanted(name: str) -> bool:
        return part in name and ctx.caller.may("read", (namespace, name))

    sort, after = values["sort"] or _BY_NAME, (values["cursor"] or b"").decode()
    place = _place(after) if sort != _BY_NAME and after else None
    limit: int = values["limit"]
    step = limit if sort == _BY_NAME and not part else _STEP
    names: list[str] = []
    most: list[tuple[int, str]] = []
    cursor: str | None = after if sort == _BY_NAME else ""
    topics = ctx.node.engine.state.topics
    while cursor is not None and len(names) < limit:
        found, cursor = ctx.node.engine.state.names.page(
            namespace, step, after=cursor, prefix=prefix
        )
        found = [name for name in found if wanted(name)]
        if sort == _BY_NAME:
            names += found
        else:
            sized = ((-group_counts(topics[namespace, name].default)[sort], name) for name in found)
            behind = [each for each in sized if place is None or each > place]
            # `most` is in order, which sorting makes use of.
            most = sorted([*most, *behind])[: limit + 1]
        if cursor is not None and len(names) < limit:
            # Many topics that are not wanted, or are only sorted, lie between two others.
            await ctx.node.pause()
    if sort == _BY_NAME:
        # The last name looked at may be of a topic that is not wanted.
        more = cursor is not None or len(names) > limit
        del names[limit:]
        cursor = names[-1] if more and names else None
    else:
        names = [name for _, name in most[:limit]]
        cursor = f"{-most[limit - 1][0]}.{names[-1]}" if len(most) > limit else None
    page: list[dict[str, Any]] = []
    for first in range(0, len(names), _DESCRIBED):
        if first:
            await ctx.node.pause()
        some = ((namespace, name) for name in names[first : first + _DESCRIBED])
        page += [_describe_topic(topics[key]) for key in some if key in topics]
    return ctx.answer({"topics": page, "cursor": cursor})


def _place(cursor: str) -> tuple[int, str]:
    """The place in a sorted list, behind which its next page begins: (-messages, name)."""
    count, _, name = cursor.partition(".")
    if not name or not count.isascii() or not count.isdigit():
        raise Problem(
            "bad_request", f"cursor {cursor[:64]!a} is not that of a list", field="cursor"
        )
    return -int(count), name


async def get_topic(ctx: Context) -> Answer:
    """GET /v1/topics/{t}."""
    return ctx.answer(_describe_topic(the_topic(ctx)))


async def put_topic(ctx: Context) -> Answer:
    """PUT /v1/topics/{t}: create a topic, or replace its settings."""
    members = await ctx.members()
    settings = parse_settings(members)
    ctx.note(members)
    node = ctx.node
    known = node.engine.state.topics.get(ctx.topic_key)
    topic = node.engine.put_topic(ctx.topic_key[1], settings, node.clock.now_ms(), ctx.topic_key[0])
    return await ctx.durable_answer(_describe_topic(topic), status=200 if known else 201)


async def update_topic(ctx: Context) -> Answer:
    """PATCH /v1/topics/{t}: change the settings that are named; null is back to the default."""
    members = await ctx.members()
    topic = the_topic(ctx)
    settings = parse_settings(topic.settings.changed(SETTINGS.check(members)))
    ctx.note(members)
    node = ctx.node
    topic = node.engine.put_topic(ctx.topic_key[1], settings, node.clock.now_ms(), ctx.topic_key[0])
    return await ctx.durable_answer(_describe_topic(topic))


async def delete_topic(ctx: Context) -> Answer:
    """DELETE /v1/topics/{t}: delete a topic; one with living messages needs `force`."""
    force = ctx.query_values()["force"]
    topic = the_topic(ctx)
    if topic.pending and not force:
        raise Problem(
            "conflict",
            f"topic {topic.name!r} still holds {topic.pending} messages; consume or purge them "
            "first, or delete it with ?force=true",
            living=topic.pending,
        )
    node = ctx.node
    drop_topic(node.engine.state, topic, node.clock.now_ms())
    return await ctx.durable_answer({"result": "done"})


async def topic_stats(ctx: Context) -> Answer:
    """GET /v1/topics/{t}/stats."""
    values = ctx.query_values()
    topic, group = seen_or_blank(ctx, values)
    members: dict[str, Any] = {}
    if values["delay_buckets"]:
        waiting = WaitingCounts(ctx.node.engine.state, ctx.node.clock.now_ms(), topic, group)
        await ctx.node.run(waiting.work())
        members["delay_buckets"] = waiting.buckets(topic)
    oldest_due_ms = await _oldest_due_ms(ctx, topic, group)
    now_ms = ctx.node.clock.now_ms()
    return ctx.answer(
        {
            "topic": topic.name,
            "group": group.name,
            "counts": group_counts(group),
            "consumers": _consumers(ctx, topic, group),
            "waiting_receives": ctx.node.waiters.waiting((topic.namespace, topic.name, group.name)),
            "bounded_by": bounded_by(ctx.node.engine.state, topic, group, now_ms),
            **members,
            "oldest_due_ms": oldest_due_ms,
            "rates": {
                name: round(meter.per_second(now_ms, count), 3)
                for name, meter, count in (
                    ("sent", topic.sent_rate, topic.sent),
                    ("delivered", group.delivered_rate, group.counts.delivered),
                    ("acked", group.acked_rate, group.counts.acked),
                )
            },
            "sent": topic.sent,
            "delivered": group.counts.delivered,
            "now_ms": now_ms,
        }
    )


async def overview(ctx: Context) -> Answer:
    """GET /v1/overview."""
    node, values = ctx.node, ctx.query_values()
    state, now_ms = node.engine.state, node.clock.now_ms()
    found = Overview(
        state,
        now_ms,
        minutes=values["minutes"],
        hours=values["hours"],
        shown=lambda topic: ctx.caller.may("read", (topic.namespace, topic.name)),
    )
    await node.run(found.work())
    # Topics and groups may have been dropped since they were summed up.
    behind = [
        each for each in found.behind if state.group(each[1].number, each[2].number) is each[2]
    ]
    oldest = oldest_due_ms(state, [group for _, _, group in behind])
    return ctx.answer(
        {
            "now_ms": now_ms,
            "topics": found.topics,
            "namespaces": state.names.namespaces(),
            "counts": {
                "waiting": found.living - found.leased - found.ready,
                **{name: getattr(found, name) for name in ("ready", "leased", "dead")},
            },
            "rates": {
                name: round(getattr(found, name), 3) for name in ("sent", "delivered", "acked")
            },
            "behind": [
                {
                    "namespace": topic.namespace,
                    "topic": topic.name,
                    "group": group.name,
                    "ready": ready,
                    "oldest_due_ms": due_ms,
                }
                for (ready, topic, group), due_ms in zip(behind, oldest, strict=True)
            ],
            "minutes": found.minutes,
            "hours": found.hours,
            "later": found.later,
            "seconds": found.seconds,
            "lateness": {
                "bounds_ms": BOUNDS_MS,
                "minutes": node.recent_lateness.minutes(now_ms),
            },
            "jobs_running": len(state.jobs.running()),
            "free_bytes": node.free_bytes(),
            "disk_full": node.refusing_sends,
        }
    )


def _consumers(ctx: Context, topic: Topic, group: Group) -> list[dict[str, Any]]:
    """The named consumers with the most messages under lease."""
    named = ctx.node.engine.state.leases.consumers(topic.number, group.number)
    most = nlargest(CONSUMERS_MAX, named.items(), key=itemgetter(1))
    return [{"name": name, "leased": leased} for name, leased in most]


async def _oldest_due_ms(ctx: Context, topic: Topic, group: Group) -> int | None:
    """Due time of the first waiting or ready message, None if there is none."""
    node, cursor = ctx.node, None
    while group.counts.living > group.counts.leased:
        listing = Listing(
            node.engine.state,
            topic,
            replace(_FIRST, cursor=cursor),
            Effort(ctx.node.machine.steady_s),
            group=group,
            now_ms=node.clock.now_ms(),
        )
        await node.run(listing.work())
        if listing.page.messages:
            return int(listing.page.messages[0].row["deliver_at"])
        cursor = listing.page.cursor
        if cursor is None:
            break
    return None


# ------------------------------------------------------ groups, and operations on a whole topic


def _describe_group(topic: Topic, group: Group) -> dict[str, Any]:
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
        _describe_group(topic, group)
        for group in topic.groups.values()
        if ctx.caller.may("read", ctx.topic_key, group.name)
    ]
    return ctx.answer({"groups": groups})


async def get_group(ctx: Context) -> Answer:
    """GET …/groups/{g}."""
    return ctx.answer(_describe_group(*_the_group(ctx)))


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
    return await ctx.durable_answer(_describe_group(topic, group), status=200 if known else 201)


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
