"""Keyword arguments that several calls take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from delaylog.storage.messages.message_fields import SendFields


class DueKeywords(TypedDict, total=False):
    """When a message is due, said in one way."""

    deliver_at_ms: int | None
    delay_ms: int | None
    at: datetime | None
    delay: timedelta | None


class SendKeywords(SendFields, DueKeywords, total=False):
    """What `send` takes beside a body: one time at most, and the fields of a message."""


class PeekKeywords(TypedDict, total=False):
    """How many ready messages are wanted (1), and which."""

    max: int
    group: str | None
    tags: Sequence[str]
    tags_mode: str
    """`any` or `all` of the tags."""
    ids: Sequence[str]


class ReceiveKeywords(PeekKeywords, total=False):
    """What `receive` takes: also how long to wait for the first, and the lease."""

    wait_ms: int
    lease_ms: int | None
    exact_tags: bool


class SettleTimes(TypedDict, total=False):
    """The delay of a nack (None: the backoff), the lease of an extend (0 gives back)."""

    delay_ms: int | None
    lease_ms: int | None


class SettleKeywords(SettleTimes, total=False):
    """What settling by ids takes: also the group."""

    group: str | None


class ListKeywords(TypedDict, total=False):
    """Which messages a list has."""

    due_from: int | None
    due_to: int | None
    tag: str | None
    key: str | None
    group: str | None
    bodies: bool


def list_query(filter: ListKeywords) -> dict[str, Any]:
    """As the query of a list. TypeError for an unknown keyword."""
    for name in filter.keys() - ListKeywords.__annotations__.keys():
        raise TypeError(f"a list has no filter {name!r}")
    return {**filter, "bodies": filter.get("bodies") or None}
