"""Calls about topics as a whole, their groups, and the broker itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delaylog.client.calls.call import Call
from delaylog.client.calls.places import Places
from delaylog.client.calls.requests import request


def topics(
    places: Places,
    /,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    prefix: str | None = None,
) -> Call[dict[str, Any]]:
    """A page of the topics of the namespace, by name; `cursor` goes on behind a page."""
    return request("listTopics", places, limit=limit, cursor=cursor, prefix=prefix)


def get_topic(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """A topic, its settings and its counts. NotFound."""
    return request("getTopic", places, topic)


def put_topic(places: Places, /, topic: str, settings: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Make a topic, or change its settings."""
    return request("putTopic", places, topic, **settings)


def drop_topic(places: Places, /, topic: str, *, force: bool = False) -> Call[dict[str, Any]]:
    """Delete a topic: an empty one (Conflict), or by force any. NotFound."""
    return request("deleteTopic", places, topic, force=force)


def stats(
    places: Places, /, topic: str, *, group: str | None = None, delay_buckets: bool = True
) -> Call[dict[str, Any]]:
    """Counts by state as a group sees them, rates, the oldest due time. NotFound."""
    return request("getStats", places, topic, group=group, delay_buckets=delay_buckets)


def cheap_stats(
    places: Places, /, topic: str, *, group: str | None = None, delay_buckets: bool = False
) -> Call[dict[str, Any]]:
    """Counts by state as a group sees them, rates, the oldest due time. NotFound.

    `delay_buckets` also counts waiting messages by how far off they are, which costs more.
    """
    return stats(places, topic, group=group, delay_buckets=delay_buckets)


# Clients have it under this name, and errors say it.
cheap_stats.__name__ = stats.__name__


def forecast(
    places: Places,
    /,
    topic: str,
    *,
    minutes: int | None = None,
    hours: int | None = None,
    group: str | None = None,
) -> Call[dict[str, Any]]:
    """Messages to come, per minute and per hour. NotFound."""
    return request("getForecast", places, topic, minutes=minutes, hours=hours, group=group)


def groups(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """The topic's groups, each with its counts."""
    return request("listGroups", places, topic)


def put_group(
    places: Places, /, topic: str, group: str, *, ephemeral: bool = False
) -> Call[dict[str, Any]]:
    """Make a group, which sees what is sent from now on, or change how it ends."""
    return request("putGroup", places, topic, group, ephemeral=ephemeral)


def drop_group(places: Places, /, topic: str, group: str) -> Call[dict[str, Any]]:
    """Drop a group; what waited for it alone has ended."""
    return request("deleteGroup", places, topic, group)


def purge(
    places: Places,
    /,
    topic: str,
    *,
    group: str | None = None,
    force: bool = False,
    erase: bool = False,
) -> Call[dict[str, Any]]:
    """End what waits or is ready, in one group or in all; `force`: what is leased too.

    How many that were. `erase`, with `force` and no group: every byte of the messages leaves the
    data folders; `erasing` of the topic says for how long that goes on.
    """
    return request("purge", places, topic, group=group, force=force, erase=erase)


def pause(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """Hand nothing out; sends and settles go on."""
    return request("pause", places, topic)


def resume(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """Hand out again."""
    return request("resume", places, topic)


def clock(*, accept: bool = False) -> Call[dict[str, Any]]:
    """The broker's clock; `accept` = wall time was set back and is right, go back to it."""
    return request("acceptClock", accept=True) if accept else request("getClock")


def cluster() -> Call[dict[str, Any]]:
    """What the node that is asked knows of its cluster."""
    return request("getCluster")


def change_members(
    action: str, nodes: Sequence[str], contact: Mapping[str, Any]
) -> Call[dict[str, Any]]:
    """Add, promote, remove, replace or move nodes of a cluster."""
    return request("changeMembers", action=action, nodes=[*nodes], **contact)


def hand_over(to: int | str | None = None) -> Call[dict[str, Any]]:
    """Have another node lead."""
    return request("handOver", to=to)
