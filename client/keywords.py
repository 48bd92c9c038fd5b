"""Keyword arguments that several calls take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypedDict

from delaylog.contract.message_fields import BY_NAME, MergeMode

TagsMode: TypeAlias = Literal["any", "all"]


class TimeLimit(TypedDict, total=False):
    """How long a call may take. None: as long as the client says (10 s)."""

    timeout: timedelta | None


class SettleLimits(TimeLimit, total=False):
    """How long settling may take."""

    wait: bool
    """Embedded brokers only: whether to wait for the disk. Clients refuse it."""


class DueKeywords(TypedDict, total=False):
    """When a message is due: at most one of the three."""

    deliver_at_ms: int | None
    at: datetime | None
    delay: timedelta | None


class ChangeKeywords(DueKeywords, TimeLimit, total=False):
    """The keywords of a change of due times: also the time limit."""


class MessageKeywords(TypedDict, total=False):
    """The fields of a message; None and empty values count as absent."""

    id: str | None
    key: str | None
    tags: Sequence[str]
    headers: Mapping[str, str] | None
    priority: int | None
    ttl: timedelta | None
    """How long after its due time it expires; timedelta.max: never."""
    max_retry: int | None
    merge: MergeMode | None
    backoff: Mapping[str, float] | None


assert {*MessageKeywords.__annotations__, "ttl_ms"} == {*BY_NAME, "ttl"}, "the table agrees"


class SendKeywords(MessageKeywords, DueKeywords, total=False):
    """At most one due time, and the fields of a message."""


class ContentKeywords(TypedDict, total=False):
    """What a message without a `body` has in it: one of the two. None is a value."""

    json: Any
    value: Any
    """Encoded by the codec of the client."""


class OneMessageKeywords(MessageKeywords, ContentKeywords, total=False):
    """The fields of a message, and its content."""


class QueuedSendKeywords(SendKeywords, ContentKeywords, total=False):
    """The keywords of `send_soon`: also the content."""


class OneSendKeywords(QueuedSendKeywords, TimeLimit, total=False):
    """The keywords of `send`: also the time limit."""


class ManySendKeywords(SendKeywords, TimeLimit, total=False):
    """The keywords of `send_many`: those of all its messages, and the time limit."""


class TimerKeywords(DueKeywords, ContentKeywords, TimeLimit, total=False):
    """When a timer fires, the content of its message, and the time limit of the call."""

    body: bytes | str | None


class PeekKeywords(TimeLimit, total=False):
    """The keywords of `peek`: how many ready messages at most (1), and which ones."""

    max: int
    group: str | None
    tags: Sequence[str]
    tags_mode: TagsMode
    """Whether a message must have `any` or `all` of the tags."""
    ids: Sequence[str]


class ReceiveKeywords(PeekKeywords, total=False):
    """The keywords of `receive`: also how long to wait for the first message, and the lease."""

    wait: timedelta | None
    lease: timedelta | None
    exact_tags: bool
    begin: int | None
    """At how many messages, the first ones, an attempt begins at once if it is their first; None:
    at all of them.
    """
    consumer: str | None
    """A name that is stored with the attempts; None: host name and process id."""


class SubscribeKeywords(TypedDict, total=False):
    """The keywords of `subscribe`: those of `receive` without the wait and the ids."""

    max: int
    lease: timedelta | None
    group: str | None
    tags: Sequence[str]
    tags_mode: TagsMode
    exact_tags: bool
    consumer: str | None


class SettleTimes(TimeLimit, total=False):
    """What a settling says, as the wire has it: see SettleKeywords."""

    delay_ms: int | None
    lease_ms: int | None
    reason: str | None


class SettleKeywords(TimeLimit, total=False):
    """The keywords of settling by ids.

    The delay of a nack (None: the backoff), the lease of a begin or extend (0: a release). `reason`
    says why an attempt failed: 1,024 bytes of a nack or reject.
    """

    delay: timedelta | None
    lease: timedelta | None
    reason: str | None
    group: str | None


class ListKeywords(TimeLimit, total=False):
    """The filters of a list of messages. The time limit is that of each page."""

    due_from: datetime | None
    due_from_ms: int | None
    due_to: datetime | None
    """Due before this time."""
    due_to_ms: int | None
    tag: str | None
    key: str | None
    group: str | None
    bodies: bool


class DeadKeywords(ListKeywords, total=False):
    """The filters of a list of dead letters: also how the last attempt at them failed."""

    cause: Literal["nack", "lease_expired", "rejected"] | None
    reason: str | None
    reason_prefix: str | None
    """What the reason begins with, such as the class of an exception and a colon."""


class SettingsSpans(TypedDict, total=False):
    """The settings of a topic that are durations."""

    aging: timedelta | None
    ttl: timedelta | None
    lease: timedelta | None
    ended_keep: timedelta | None
    dead_keep: timedelta | None


class SettingsKeywords(SettingsSpans, total=False):
    """The settings of a topic, as keywords of `update_topic`."""

    order: Literal["time", "priority"] | None
    merge: MergeMode | None
    merge_leased: Literal["keep", "successor"] | None
    max_retry: int | None
    backoff: Mapping[str, float] | None
    dead_expired: bool | None
    rate_limit: Mapping[str, float] | None
    quota: Mapping[str, int] | None
    slots: int | None
    default_group: bool | None


class UpdateKeywords(SettingsKeywords, TimeLimit, total=False):
    """The keywords of `update_topic`: also the time limit."""
