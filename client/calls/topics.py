"""Calls about topics as a whole, their groups, and the broker itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from delaylog.client.calls.call import Call, given, json_call, with_query
from delaylog.client.calls.places import Places

CLUSTER: Final = "/v1/cluster"


def topics(
    places: Places,
    /,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    prefix: str | None = None,
) -> Call[dict[str, Any]]:
    """A page of the topics of the namespace, by name; `cursor` goes on behind a page."""
    return json_call("GET", with_query(places.topics, limit=limit, cursor=cursor, prefix=prefix))


def get_topic(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """A topic, its settings and its counts. NotFound."""
    return json_call("GET", places.of(topic))


def put_topic(places: Places, /, topic: str, settings: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Make a topic, or change its settings."""
    return json_call("PUT", places.of(topic), dict(settings))


def drop_topic(places: Places, /, topic: str, *, force: bool = False) -> Call[dict[str, Any]]:
    """Delete a topic: an empty one (Conflict), or by force any. NotFound."""
    return json_call("DELETE", with_query(places.of(topic), force=force or None))


def stats(
    places: Places, /, topic: str, *, group: str | None = None, delay_buckets: bool = True
) -> Call[dict[str, Any]]:
    """Counts by state as a group sees them, rates, the oldest due time. NotFound."""
    path = places.of(topic, "stats")
    return json_call(
        "GET", with_query(path, group=group, delay_buckets=None if delay_buckets else False)
    )


def cheap_stats(
    places: Places, /, topic: str, *, group: str | None = None, delay_buckets: bool = False
) -> Call[dict[str, Any]]:
    """Counts by state as a group sees them, rates, the oldest due time. NotFound.

    `delay_buckets` also counts waiting messages by how far off they are, which costs more.
    """
    return stats(places, topic, group=group, delay_buckets=delay_buckets)


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
    path = places.of(topic, "forecast")
    return json_call("GET", with_query(path, minutes=minutes, hours=hours, group=group))


def groups(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """The topic's groups, each with its counts."""
    return json_call("GET", places.of(topic, "groups"))


def put_group(
    places: Places, /, topic: str, group: str, *, ephemeral: bool = False
) -> Call[dict[str, Any]]:
    """Make a group, which sees what is sent from now on, or change how it ends."""
    return json_call("PUT", places.of(topic, "groups", group), {"ephemeral": ephemeral})


def drop_group(places: Places, /, topic: str, group: str) -> Call[dict[str, Any]]:
    """Drop a group; what waited for it alone has ended."""
    return json_call("DELETE", places.of(topic, "groups", group))


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
    members = {"force": force} | given(group=group, erase=erase or None)
    return json_call("POST", places.of(topic, "purge"), members)


def pause(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """Hand nothing out; sends and settles go on."""
    return json_call("POST", places.of(topic, "pause"), {})


def resume(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """Hand out again."""
    return json_call("POST", places.of(topic, "resume"), {})


def clock(*, accept: bool = False) -> Call[dict[str, Any]]:
    """The broker's clock; `accept` = wall time was set back and is right, go back to it."""
    if accept:
        return json_call("POST", "/v1/clock", {"accept": True})
    return json_call("GET", "/v1/clock")


def cluster() -> Call[dict[str, Any]]:
    """What the node that is asked knows of its cluster."""
    return json_call("GET", CLUSTER)


def change_members(
    action: str, nodes: Sequence[str], contact: Mapping[str, Any]
) -> Call[dict[str, Any]]:
    """Add, promote, remove, replace or move nodes of a cluster."""
    members = {"action": action, "nodes": [*nodes], **contact}
    return json_call("POST", f"{CLUSTER}/members", members)


def hand_over(to: int | str | None = None) -> Call[dict[str, Any]]:
    """Have another node lead."""
    return json_call("POST", f"{CLUSTER}/handover", given(to=to))
