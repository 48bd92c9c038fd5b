"""Calls about push targets: where the broker pushes the messages of a group to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias, Unpack

from delaylog.client.calls.call import Call, Places, request
from delaylog.client.keywords import TimeLimit
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.times import duration_ms, split_limit

PushMode: TypeAlias = Literal["binary", "structured"]


class TargetKeywords(TimeLimit, total=False):
    """How messages are pushed, as docs/HTTP.md describes the members of these names."""

    secrets: Sequence[str] | None
    mode: PushMode | None
    push_timeout: timedelta | None
    """How long an attempt may take: the member `timeout_ms`."""
    concurrency: int | None
    per_second: float | None


def target(
    places: Places, /, topic: str, group: str, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Return the push target of a group, without its secrets. Raises NotFound."""
    return request("getTarget", places, topic, group, limits=limits)


def targets(places: Places, /, topic: str, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return the push targets of a topic's groups, without their secrets."""
    return request("listTargets", places, topic, limits=limits)


def put_target(
    places: Places,
    /,
    topic: str,
    group: str,
    url: str,
    **said: Unpack[TargetKeywords],
) -> Call[dict[str, Any]]:
    """Push the messages of a group to a URL. `secret` of the answer is the one that the broker made
    if you gave none; no other answer shows it.
    """
    limit_s, members = _members("put_target", said)
    return request(
        "putTarget",
        places,
        topic,
        group,
        url=url,
        limit_s=limit_s,
        **members,
    )


def update_target(
    places: Places,
    /,
    topic: str,
    group: str,
    *,
    url: str | None = None,
    push: Literal["on", "off"] | None = None,
    rotate: bool = False,
    **said: Unpack[TargetKeywords],
) -> Call[dict[str, Any]]:
    """Change what is given of a push target, and nothing else. `push="on"` also ends the pauses of
    its breaker; `rotate`: the answer has a new `secret`. Raises NotFound.
    """
    limit_s, members = _members("update_target", said)
    return request(
        "updateTarget",
        places,
        topic,
        group,
        url=url,
        push=push,
        rotate=rotate,
        limit_s=limit_s,
        **members,
    )


def drop_target(
    places: Places, /, topic: str, group: str, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Push nothing more; messages stay in the group. Raises NotFound."""
    return request("deleteTarget", places, topic, group, limits=limits)


def _members(call: str, said: TargetKeywords) -> tuple[float | None, dict[str, Any]]:
    """The time limit, and the other members of a request. TypeError for another keyword."""
    check_keywords(call, said, TargetKeywords)
    limit_s, given = split_limit(said)
    members = dict(given)
    if "push_timeout" in members:
        members["timeout_ms"] = duration_ms("push_timeout", members.pop("push_timeout"))
    if members.get("secrets") is not None:
        members["secrets"] = list(members["secrets"])
    return limit_s, members
