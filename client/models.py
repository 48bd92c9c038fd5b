"""The values that calls take and return, as typed, frozen dataclasses.

Each class reads the API's JSON in its `of` method and ignores members it does not know, which a
newer broker may add.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias, get_args

from delaylog.client.keywords import QueuedSendKeywords, SettingsKeywords, SettingsSpans
from delaylog.client.wire.json_form import body_of, read_members
from delaylog.client.wire.times import NEVER_MS, duration_ms, in_ms
from delaylog.contract.calls.shapes import SETTINGS
from delaylog.contract.message_fields import MergeMode

SentResult: TypeAlias = Literal["created", "kept", "replaced", "rejected"]
ChangeResult: TypeAlias = Literal["done", "too_late", "unknown"]
State: TypeAlias = Literal[
    "waiting", "ready", "leased", "acked", "expired", "dead", "cancelled", "replaced"
]
"""What a group has done with a message; its end in the last four."""


class Settled(StrEnum):
    """The result of an ack, nack or extend for one message."""

    DONE = "done"
    GONE = "gone"
    """The lease had already ended: the message is delivered again, or another consumer has it."""
    UNKNOWN = "unknown"
    """An earlier answer was lost: either the call was carried out, or the lease had ended."""


class TimerState(StrEnum):
    """What has become of a timer."""

    PENDING = "pending"
    """No handler has begun with it, and it can be moved or cancelled."""
    FIRED = "fired"
    """A consumer has it, or had it: it is delivered until a handler returns."""
    CANCELLED = "cancelled"
    """No handler has begun with it, and none will."""
    EXPIRED = "expired"
    """Its `ttl_ms`, which a topic may have by default, ended before a consumer had it."""
    UNSET = "unset"
    """The broker knows no such timer, or has forgotten what became of it."""


class Sent(NamedTuple):
    """An accepted send: the id, the due time that the broker stored, and the result of merging."""

    id: str
    deliver_at_ms: int
    result: SentResult
    """What came of the send.

    `created`: there is a new message. `kept`: a message with this id existed, and this one was
    **not** stored. `replaced`: it was stored instead of that one. `rejected`, in results of
    `send_many`: it was refused because of that one.
    """
    shard: str = ""
    """The name of the shard that stores the message."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message for `send_many`. None uses the topic's default; without a time it is due now.

    Its content is one of `body`, `json` and `value`; `...` stands for none.
    """

    body: bytes | str | None = None
    deliver_at_ms: int | None = None
    at: datetime | None = None
    delay: timedelta | None = None
    id: str | None = None
    key: str | None = None
    tags: Sequence[str] = ()
    headers: Mapping[str, str] | None = None
    priority: int | None = None
    ttl: timedelta | None = None
    max_retry: int | None = None
    merge: MergeMode | None = None
    backoff: Mapping[str, float] | None = None
    json: Any = ...
    value: Any = ...
    """Encoded by the codec of the client."""


assert {each.name for each in fields(NewMessage)} == QueuedSendKeywords.__annotations__.keys() | {
    "body"
}


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of a cancel or reschedule, or of one id of a replay."""

    result: ChangeResult
    """`done`; for a replay also `too_late` or `unknown`."""
    state: State | None = None
    deliver_at_ms: int | None = None
    groups: tuple[str, ...] = ()
    """The groups for which the change came too late."""

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return read_members(cls, shape, groups=tuple(shape.get("groups") or ()))


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """A message as one group sees it, without a lease."""

    id: str
    state: State
    deliver_at_ms: int
    attempts: int
    priority: int
    key: str | None
    tags: tuple[str, ...]
    cause: str | None = None
    reason: str | None = None
    """From `get` and `dead`: why the last failed attempt failed, in the words of its consumer. None
    if it gave none."""
    failures: tuple[Mapping[str, Any], ...] = ()
    """From `get` and `dead`: each failed attempt that is kept, with its reason and consumer."""
    consumer: str | None = None
    """The name of the consumer that has it under lease, if it gave one."""
    address: str | None = None
    """The address of that consumer."""
    sent_at_ms: int | None = None
    expires_at_ms: int | None = None
    max_retry: int | None = None
    lease_until_ms: int | None = None
    ended_at_ms: int | None = None
    body: bytes | None = None
    """None if the call does not return bodies."""
    headers: Mapping[str, str] = field(default_factory=dict)
    backoff: Mapping[str, float] | None = None
    life: tuple[Mapping[str, Any], ...] = ()
    """The message's history, oldest event first, if it was requested."""
    life_complete: bool = True
    waits: tuple[Mapping[str, Any], ...] = ()
    """With `life`: what kept it from being handed out while it was ready."""
    shard: str = ""

    @property
    def text(self) -> str:
        """The body decoded as UTF-8. ValueError if it is not UTF-8, or was not asked for."""
        return self._content().decode()

    def json(self) -> Any:
        """The body parsed as JSON. ValueError if it is not JSON, or was not asked for."""
        return json.loads(self._content())

    def _content(self) -> bytes:
        if self.body is None:
            raise ValueError("the body was not asked for: call with bodies=True")
        return self.body

    @classmethod
    def of(cls, shape: Mapping[str, Any], shard: str = "") -> Self:
        """From the API's JSON, of a get, a list, the dead letters or a peek."""
        name = "history" if "history" in shape else "life"
        return read_members(
            cls,
            {"state": "ready", **shape},
            priority=shape.get("priority") or 0,
            key=shape.get("key"),
            tags=tuple(shape.get("tags") or ()),
            body=body_of(shape) if "body" in shape or "body_base64" in shape else None,
            headers=shape.get("headers") or {},
            failures=tuple(shape.get("failures") or ()),
            life=tuple(shape.get(name) or ()),
            waits=tuple(shape.get("waits") or ()),
            life_complete=shape.get(f"{name}_complete", True),
            shard=shard,
        )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic. None uses the broker's default; a `ttl` of timedelta.max: never."""

    order: Literal["time", "priority"] | None = None
    aging: timedelta | None = None
    merge: MergeMode | None = None
    merge_leased: Literal["keep", "successor"] | None = None
    ttl: timedelta | None = None
    max_retry: int | None = None
    backoff: Mapping[str, float] | None = None
    lease: timedelta | None = None
    ended_keep: timedelta | None = None
    dead_keep: timedelta | None = None
    dead_expired: bool | None = None
    rate_limit: Mapping[str, float] | None = None
    quota: Mapping[str, int] | None = None
    slots: int | None = None
    default_group: bool | None = None

    def __post_init__(self) -> None:
        for name in SettingsSpans.__annotations__:
            duration_ms(name, getattr(self, name))

    def members(self) -> dict[str, Any]:
        """The settings that are not None, as the API's JSON."""
        said = in_ms(asdict(self), *SettingsSpans.__annotations__)
        return {name: value for name, value in said.items() if value is not None}

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        said = {name: shape[name] for name in cls.__dataclass_fields__ if name in shape}
        for name in SettingsSpans.__annotations__:
            ms = shape.get(f"{name}_ms")
            if ms is not None:
                said[name] = timedelta.max if ms == NEVER_MS else timedelta(milliseconds=ms)
        return cls(**said)


_NAMES: Final = {name.removesuffix("_ms") for name in SETTINGS.names}
assert {each.name for each in fields(TopicSettings)} == _NAMES, "a setting of a topic is missing"
assert SettingsKeywords.__annotations__.keys() == _NAMES, "a keyword of a setting is missing"


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of messages in each state, as one group sees them."""

    waiting: int = 0
    ready: int = 0
    leased: int = 0
    acked: int = 0
    expired: int = 0
    dead: int = 0
    cancelled: int = 0
    replaced: int = 0

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return cls(**{name: int(shape.get(name, 0)) for name in cls.__dataclass_fields__})

    def __add__(self, other: Counts) -> Counts:
        names = self.__dataclass_fields__
        return Counts(*(getattr(self, name) + getattr(other, name) for name in names))


assert tuple(each.name for each in fields(Counts)) == get_args(State)


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
        return read_members(
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
        return read_members(cls, shape, counts=Counts.of(shape["counts"]))


@dataclass(frozen=True, slots=True)
class Stats:
    """The counts of a topic as one group sees them, rates per second, and the first due time."""

    topic: str
    group: str
    counts: Counts
    oldest_due_ms: int | None
    rates: Mapping[str, float]
    sent: int
    delivered: int
    now_ms: int
    delay_buckets: Mapping[str, int] | Sequence[Mapping[str, Any]] | None = None
    """Waiting messages by their remaining delay, as the broker reports it; None for several."""
    consumers: tuple[Mapping[str, Any], ...] = ()
    """`name` of the consumers that have messages under lease, and how many: `leased`."""

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return read_members(
            cls,
            shape,
            counts=Counts.of(shape["counts"]),
            rates=dict(shape["rates"]),
            consumers=tuple(shape.get("consumers", ())),
        )


@dataclass(frozen=True, slots=True)
class ForecastSlot:
    """The number of messages due in one minute or hour, and of firings of schedules, which are no
    messages yet.
    """

    from_ms: int
    count: int
    firings: int = 0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The number of messages due per minute, per hour, and after the last of these hours."""

    topic: str
    now_ms: int
    minutes: tuple[ForecastSlot, ...]
    hours: tuple[ForecastSlot, ...]
    later: int
    schedules: int = 0
    """Schedules whose firings are counted."""
    schedules_left: bool = False
    """Whether the topic has more schedules than the broker counts."""
    firings_until_ms: int | None = None
    """Firings from this time on are not counted. None: a broker without schedules."""

    @classmethod
    def of(cls, shape: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        slots = {
            name: tuple(read_members(ForecastSlot, each) for each in shape[name])
            for name in ("minutes", "hours")
        }
        return read_members(cls, shape, **slots)
