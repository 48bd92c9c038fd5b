"""Calls about whole topics, their groups, and the broker itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from delaylog.client.calls.call import Call, json_call
from delaylog.client.calls.places import Places
from delaylog.client.calls.requests import path_of, request
from delaylog.client.keywords import SettingsKeywords


def topics(
    places: Places,
    /,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    prefix: str | None = None,
) -> Call[dict[str, Any]]:
    """Return a page of the topics of the namespace, by name, starting after `cursor`."""
    return request("listTopics", places, limit=limit, cursor=cursor, prefix=prefix)


def get_topic(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """Return a topic, its settings and its counts. Raises NotFound."""
    return request("getTopic", places, topic)


def put_topic(places: Places, /, topic: str, settings: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Create a topic, or change its settings."""
    return request("putTopic", places, topic, **settings)


def update_topic(
    places: Places, /, topic: str, **settings: Unpack[SettingsKeywords]
) -> Call[dict[str, Any]]:
    """Change the settings that are named, and no others; None: back to the default.

    Members of `backoff`, `rate_limit` and `quota` that are not named stay too. Raises NotFound, and
    Conflict if `slots` differ.
    """
    # Not `request`, which leaves None out.
    return json_call("PATCH", path_of("updateTopic", places, topic), settings)


def drop_topic(places: Places, /, topic: str, *, force: bool = False) -> Call[dict[str, Any]]:
    """Delete an empty topic (else Conflict); with `force` any topic. Raises NotFound."""
    return request("deleteTopic", places, topic, force=force)


def stats(
    places: Places, /, topic: str, *, group: str | None = None, delay_buckets: bool = True
) -> Call[dict[str, Any]]:
    """Return counts by state as one group sees them, rates, and the oldest due time."""
    return request("getStats", places, topic, group=group, delay_buckets=delay_buckets)


def cheap_stats(
    places: Places, /, topic: str, *, group: str | None = None, delay_buckets: bool = False
) -> Call[dict[str, Any]]:
    """Return counts by state as one group sees them, rates, and the oldest due time.

    `delay_buckets` also counts waiting messages by their remaining delay, which costs more.
    """
    return stats(places, topic, group=group, delay_buckets=delay_buckets)


# The clients' method has this name, and errors show it.
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
    """Return the number of messages due per minute and per hour. Raises NotFound."""
    return request("getForecast", places, topic, minutes=minutes, hours=hours, group=group)


def groups(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """Return the topic's groups, each with its counts."""
    return request("listGroups", places, topic)


def put_group(
    places: Places, /, topic: str, group: str, *, ephemeral: bool = False
) -> Call[dict[str, Any]]:
    """Create a group, which sees messages sent from now on, or change its `ephemeral`."""
    return request("putGroup", places, topic, group, ephemeral=ephemeral)


def drop_group(places: Places, /, topic: str, group: str) -> Call[dict[str, Any]]:
    """Delete a group. Messages that only this group still had to handle end."""
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
    """End waiting and ready messages, in one group or in all; `force`: also leased ones.

    Returns their number. `erase`, with `force` and without a group: the bytes of the messages are
    removed from the data folders; the topic's `erasing` is set until that is complete.
    """
    return request("purge", places, topic, group=group, force=force, erase=erase)


def pause(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """Stop deliveries from the topic; sends and acks still work."""
    return request("pause", places, topic)


def resume(places: Places, /, topic: str) -> Call[dict[str, Any]]:
    """Resume deliveries."""
    return request("resume", places, topic)


def clock(*, accept: bool = False) -> Call[dict[str, Any]]:
    """Return the broker's clock. `accept`: follow wall time that was set back on purpose."""
    return request("acceptClock", accept=True) if accept else request("getClock")


def reload() -> Call[dict[str, Any]]:
    """Have the contacted node read its certificates and other configured files again.

    Raises Conflict if they cannot be used; what was read before then stays in use.
    """
    return request("reload")


def cluster() -> Call[dict[str, Any]]:
    """Return the cluster as the contacted node sees it."""
    return request("getCluster")


def change_members(
    action: str, nodes: Sequence[str], contact: Mapping[str, Any]
) -> Call[dict[str, Any]]:
    """Add, promote, remove, replace or move nodes of a cluster."""
    return request("changeMembers", action=action, nodes=[*nodes], **contact)


def hand_over(to: int | str | None = None) -> Call[dict[str, Any]]:
    """Hand leadership over to another node."""
    return request("handOver", to=to)
