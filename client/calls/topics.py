"""Calls about whole topics, their groups, and the broker itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, Unpack

from delaylog.client.calls.call import Call, Places, json_call, path_of, request
from delaylog.client.keywords import SettingsSpans, TimeLimit, UpdateKeywords
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.times import in_ms, split_limit

TopicSort: TypeAlias = Literal["name", "waiting", "ready", "leased", "dead"]
MembersAction: TypeAlias = Literal["add", "promote", "remove", "replace", "move"]


def topics(
    places: Places,
    /,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    prefix: str | None = None,
    contains: str | None = None,
    sort: TopicSort | None = None,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Return a page of the topics of the namespace, by name, starting after `cursor`.

    With another `sort`: the topics with the most messages in that state, and no cursor.
    """
    return request(
        "listTopics",
        places,
        limit=limit,
        cursor=cursor,
        prefix=prefix,
        contains=contains,
        sort=sort,
        limits=limits,
    )


def get_topic(places: Places, /, topic: str, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return a topic, its settings and its counts. Raises NotFound."""
    return request("getTopic", places, topic, limits=limits)


def put_topic(
    places: Places, /, topic: str, settings: Mapping[str, Any], **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Create a topic, or change its settings."""
    return request("putTopic", places, topic, limits=limits, **settings)


def update_topic(
    places: Places, /, topic: str, **settings: Unpack[UpdateKeywords]
) -> Call[dict[str, Any]]:
    """Change the settings that are named, and no others; None: back to the default.

    Members of `backoff`, `rate_limit` and `quota` that are not named stay too. Raises NotFound, and
    Conflict if `slots` differ.
    """
    # Not `request`, which leaves None out.
    check_keywords("update_topic", settings, UpdateKeywords)
    limit_s, given = split_limit(settings)
    changes = in_ms(given, *SettingsSpans.__annotations__)
    path = path_of("updateTopic", places, topic)
    return json_call("PATCH", path, changes, limit_s=limit_s)


def drop_topic(
    places: Places, /, topic: str, *, force: bool = False, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Delete an empty topic (else Conflict); with `force` any topic. Raises NotFound."""
    return request("deleteTopic", places, topic, force=force, limits=limits)


def stats(
    places: Places,
    /,
    topic: str,
    *,
    group: str | None = None,
    delay_buckets: bool = True,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Return counts by state as one group sees them, rates, and the oldest due time."""
    return request(
        "getStats", places, topic, group=group, delay_buckets=delay_buckets, limits=limits
    )


def cheap_stats(
    places: Places,
    /,
    topic: str,
    *,
    group: str | None = None,
    delay_buckets: bool = False,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Return counts by state as one group sees them, rates, and the oldest due time.

    `delay_buckets` also counts waiting messages by their remaining delay, which costs more.
    """
    return stats(places, topic, group=group, delay_buckets=delay_buckets, **limits)


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
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Return the number of messages due per minute and per hour. Raises NotFound."""
    return request(
        "getForecast", places, topic, minutes=minutes, hours=hours, group=group, limits=limits
    )


def overview(
    *, minutes: int | None = None, hours: int | None = None, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Return sums over all topics, and the load to come."""
    return request("getOverview", minutes=minutes, hours=hours, limits=limits)


def all_schedules(*, limit: int | None = None, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return the schedules of all topics that fire next."""
    return request("listAllSchedules", limit=limit, limits=limits)


def all_targets(*, limit: int | None = None, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return the push targets of all topics, those that fail first."""
    return request("listAllTargets", limit=limit, limits=limits)


def groups(places: Places, /, topic: str, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return the topic's groups, each with its counts."""
    return request("listGroups", places, topic, limits=limits)


def put_group(
    places: Places,
    /,
    topic: str,
    group: str,
    *,
    ephemeral: bool = False,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Create a group, which sees messages sent from now on, or change its `ephemeral`."""
    return request("putGroup", places, topic, group, ephemeral=ephemeral, limits=limits)


def drop_group(
    places: Places, /, topic: str, group: str, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Delete a group. Messages that only this group still had to handle end."""
    return request("deleteGroup", places, topic, group, limits=limits)


def purge(
    places: Places,
    /,
    topic: str,
    *,
    group: str | None = None,
    force: bool = False,
    erase: bool = False,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """End waiting and ready messages, in one group or in all; `force`: also leased ones.

    Returns their number. `erase`, with `force` and without a group: the bytes of the messages are
    removed from the data folders; the topic's `erasing` is set until that is complete.
    """
    return request("purge", places, topic, group=group, force=force, erase=erase, limits=limits)


def pause(places: Places, /, topic: str, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Stop deliveries from the topic; sends and acks still work."""
    return request("pause", places, topic, limits=limits)


def resume(places: Places, /, topic: str, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Resume deliveries."""
    return request("resume", places, topic, limits=limits)


def clock(*, accept: bool = False, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return the broker's clock. `accept`: follow wall time that was set back on purpose."""
    if accept:
        return request("acceptClock", accept=True, limits=limits)
    return request("getClock", limits=limits)


def held(**limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Whether the broker is held, and what a release would set going: the numbers `due`, `pushes`
    and `firings`. A held broker delivers, pushes and fires nothing.
    """
    return request("getHold", limits=limits)


def hold(note: str | None = None, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Hold the broker: it delivers, pushes and fires nothing until `release_hold`."""
    return request("putHold", note=note, limits=limits)


def release_hold(**limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Have a held broker deliver, push and fire again."""
    return request("releaseHold", limits=limits)


def reload(**limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Have the contacted node read its certificates and other configured files again.

    Raises Conflict if they cannot be used; what was read before then stays in use.
    """
    return request("reload", limits=limits)


def cluster(**limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return the cluster as the contacted node sees it."""
    return request("getCluster", limits=limits)


def change_members(
    action: MembersAction,
    nodes: Sequence[str],
    contact: Mapping[str, Any],
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Add, promote, remove, replace or move nodes of a cluster."""
    return request("changeMembers", action=action, nodes=[*nodes], limits=limits, **contact)


def hand_over(to: int | str | None = None, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Hand leadership over to another node."""
    return request("handOver", to=to, limits=limits)
