"""Calls about push targets: where the broker pushes the messages of a group to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, Unpack

from delaylog.client.calls.call import Call
from delaylog.client.calls.places import Places
from delaylog.client.calls.requests import request
from delaylog.client.keywords import TimeLimit
from delaylog.client.wire.durations import limit_of

PushMode: TypeAlias = Literal["binary", "structured"]


def target(
    places: Places, /, topic: str, group: str, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Return the push target of a group, without its secrets. Raises NotFound."""
    return request("getTarget", places, topic, group, limit_s=limit_of("target", limits))


def put_target(
    places: Places,
    /,
    topic: str,
    group: str,
    url: str,
    *,
    secrets: Sequence[str] | None = None,
    mode: PushMode | None = None,
    timeout_ms: int | None = None,
    concurrency: int | None = None,
    per_second: float | None = None,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Push the messages of a group to a URL. `secret` of the answer is the one that the broker made
    if you gave none; no other answer shows it.
    """
    return request(
        "putTarget",
        places,
        topic,
        group,
        url=url,
        secrets=secrets if secrets is None else list(secrets),
        mode=mode,
        timeout_ms=timeout_ms,
        concurrency=concurrency,
        per_second=per_second,
        limit_s=limit_of("put_target", limits),
    )


def update_target(
    places: Places,
    /,
    topic: str,
    group: str,
    *,
    url: str | None = None,
    secrets: Sequence[str] | None = None,
    mode: PushMode | None = None,
    timeout_ms: int | None = None,
    concurrency: int | None = None,
    per_second: float | None = None,
    push: Literal["on", "off"] | None = None,
    rotate: bool = False,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Change what is given of a push target, and nothing else. `push="on"` also ends the pauses of
    its breaker; `rotate`: the answer has a new `secret`. Raises NotFound.
    """
    return request(
        "updateTarget",
        places,
        topic,
        group,
        url=url,
        secrets=secrets if secrets is None else list(secrets),
        mode=mode,
        timeout_ms=timeout_ms,
        concurrency=concurrency,
        per_second=per_second,
        push=push,
        rotate=rotate,
        limit_s=limit_of("update_target", limits),
    )


def drop_target(
    places: Places, /, topic: str, group: str, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Push nothing more; messages stay in the group. Raises NotFound."""
    return request("deleteTarget", places, topic, group, limit_s=limit_of("drop_target", limits))
