"""What calls take and answer, as frozen values with types.

The one rule: a value is made from the API's JSON in one place, its `of`, and a member that a newer
broker adds is left aside rather than refused.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Literal, NamedTuple, Self, TypeVar

from delaylog.client.keywords import SendKeywords

T = TypeVar("T")
TagsMode = Literal["any", "all"]


class Settled(StrEnum):
    """What an ack, nack or extend came to for one message."""

    DONE = "done"
    GONE = "gone"
    """The lease had ended before: the message comes again, or somebody else has it."""
    UNKNOWN = "unknown"
    """An answer was lost, so it was done, or the lease had ended before."""


class Sent(NamedTuple):
    """One accepted send: its id, its due time as the broker keeps it, and what merging did."""

    id: str
    deliver_at_ms: int
    result: str
    """`created`, `kept`, `replaced`, or of many `rejected`."""
    shard: str = ""
    """The name of the shard that has it."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """One message of `send_many`; what is None is as the topic says, no time at all means now."""

    body: bytes | str
    deliver_at_ms: int | None = None
    delay_ms: int | None = None
    at: datetime | None = None
    delay: timedelta | None = None
    id: str | None = None
    key: str | None = None
    tags: Sequence[str] = ()
    headers: Mapping[str, str] | None = None
    priority: int | None = None
    ttl_ms: int | None = None
    max_retry: int | None = None
    merge: str | None = None
    backoff: Mapping[str, float] | None = None


assert {each.name for each in fields(NewMessage)} == SendKeywords.__annotations__.keys() | {"body"}


@dataclass(frozen=True, slots=True)
class Changed:
    """A cancel or reschedule that was done, or one row of a replay."""

    result: str
    """`done`; of a replay also `too_late` or `unknown`."""
    state: str | None = None
    deliver_at_ms: int | None = None
    groups: tuple[str, ...] = ()
    """Groups that were too late for it."""

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return _read(cls, shape, groups=tuple(shape.get("groups") or ()))


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """All that a group sees of a message, without leasing it."""

    id: str
    state: str
    deliver_at_ms: int
    attempts: int
    priority: int
    key: str | None
    tags: tuple[str, ...]
    cause: str | None = None
    sent_at_ms: int | None = None
    expires_at_ms: int | None = None
    max_retry: int | None = None
    lease_until_ms: int | None = None
    ended_at_ms: int | None = None
    body: bytes | None = None
    """None where the call does not bring bodies."""
    headers: Mapping[str, str] = field(default_factory=dict)
    backoff: Mapping[str, float] | None = None
    life: tuple[Mapping[str, Any], ...] = ()
    """Its steps, oldest first, where they were asked for."""
    life_complete: bool = True
    shard: str = ""

    @classmethod
    def of(cls, shape: Mapping[str, Any], shard: str = "") -> Self:
        """From the API's JSON: of a get, a list, the dead letters, or a peek."""
        name = "history" if "history" in shape else "life"
        return _read(
            cls,
            {"state": "ready", **shape},
            priority=shape.get("priority") or 0,
            key=shape.get("key"),
            tags=tuple(shape.get("tags") or ()),
            body=body_of(shape) if "body" in shape or "body_base64" in shape else None,
            headers=shape.get("headers") or {},
            life=tuple(shape.get(name) or ()),
            life_complete=shape.get(f"{name}_complete", True),
            shard=shard,
        )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic; what is None is left to the broker's default."""

    order: Literal["time", "priority"] | None = None
    aging_ms: int | None = None
    merge: str | None = None
    merge_leased: Literal["keep", "successor"] | None = None
    ttl_ms: int | None = None
    max_retry: int | None = None
    backoff: Mapping[str, float] | None = None
    lease_ms: int | None = None
    ended_keep_ms: int | None = None
    dead_keep_ms: int | None = None
    dead_expired: bool | None = None
    rate_limit: Mapping[str, float] | None = None
    quota: Mapping[str, int] | None = None
    slots: int | None = None
    default_group: bool | None = None

    def members(self) -> dict[str, Any]:
        """Those that are given, as the API's JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return cls(**{name: shape[name] for name in cls.__dataclass_fields__ if name in shape})


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages by state, as one group sees them."""

    waiting: int = 0
    ready: int = 0
    leased: int = 0
    acked: int = 0
    expired: int = 0
    dead: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return cls(**{name: int(shape.get(name, 0)) for name in cls.__dataclass_fields__})

    def __add__(self, other: Counts) -> Counts:
        names = self.__dataclass_fields__
        return Counts(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its settings, its groups, and the counts of its default group."""

    topic: str
    namespace: str
    settings: TopicSettings
    paused: bool
    groups: tuple[str, ...]
    counts: Counts

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return _read(
            cls,
            shape,
            settings=TopicSettings.of(shape["settings"]),
            groups=tuple(shape["groups"]),
            counts=Counts.of(shape["counts"]),
        )


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group of consumers."""

    group: str
    topic: str
    ephemeral: bool
    counts: Counts
    delivered: int

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return _read(cls, shape, counts=Counts.of(shape["counts"]))


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of a topic as a group sees them, rates a second, and the first due time."""

    topic: str
    group: str
    counts: Counts
    oldest_due_ms: int | None
    rates: Mapping[str, float]
    sent: int
    delivered: int
    now_ms: int
    delay_buckets: Mapping[str, int] | Sequence[Mapping[str, Any]] | None = None
    """Waiting messages by how far off they are, as a broker shows it; None of several."""

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return _read(cls, shape, counts=Counts.of(shape["counts"]), rates=dict(shape["rates"]))


@dataclass(frozen=True, slots=True)
class ForecastSlot:
    """A minute or an hour, and how many messages are due in it."""

    from_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """Messages to come: minutes and hours one by one, and how many come later than these."""

    topic: str
    now_ms: int
    minutes: tuple[ForecastSlot, ...]
    hours: tuple[ForecastSlot, ...]
    later: int

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        minutes, hours = (
            tuple(ForecastSlot(each["from_ms"], each["count"]) for each in shape[name])
            for name in ("minutes", "hours")
        )
        return cls(shape["topic"], shape["now_ms"], minutes, hours, shape["later"])


@dataclass(frozen=True, slots=True)
class Received:
    """The messages of one receive in JSON and the broker's clock when it leased them."""

    messages: list[Delivered]
    now_ms: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message under lease as JSON brings it; `receipt` settles it."""

    id: str
    receipt: str
    body: bytes
    deliver_at_ms: int
    attempts: int
    lease_until_ms: int
    priority: int
    tags: tuple[str, ...]
    key: str | None
    headers: Mapping[str, str]

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return _read(
            cls,
            shape,
            body=body_of(shape),
            priority=shape.get("priority") or 0,
            tags=tuple(shape.get("tags") or ()),
            key=shape.get("key"),
            headers=shape.get("headers") or {},
        )


def _read(kind: type[T], shape: Mapping[str, Any], **made: Any) -> T:
    """A value of a dataclass: each member by its name, but for those that are `made` of others.

    One that has a default may be absent.
    """
    of: Any = kind
    for name, is_needed in _members_of(of):
        if name not in made and (is_needed or name in shape):
            made[name] = shape[name]
    return kind(**made)


@cache
def _members_of(kind: Any) -> tuple[tuple[str, bool], ...]:
    return tuple(
        (each.name, each.default is MISSING and each.default_factory is MISSING)
        for each in fields(kind)
    )


def body_of(shape: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON shape that carries `body` (text) or `body_base64`."""
    if "body_base64" in shape:
        return base64.b64decode(shape["body_base64"])
    return str(shape.get("body", "")).encode()


def with_body(shape: dict[str, Any], body: bytes | str) -> dict[str, Any]:
    """The shape with the body as text where it is text, else as base64."""
    if isinstance(body, str):
        return shape | {"body": body}
    try:
        return shape | {"body": body.decode()}
    except UnicodeDecodeError:
        return shape | {"body_base64": base64.b64encode(body).decode()}
