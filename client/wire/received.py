"""The messages of a JSON receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from delaylog.client.wire.json_bodies import body_of
from delaylog.client.wire.json_members import read_members


@dataclass(frozen=True, slots=True)
class Received:
    """The messages of one JSON receive, and the broker's time when it leased them."""

    messages: list[Delivered]
    now_ms: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """One leased message of a JSON receive; `receipt` settles it."""

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
        return read_members(
            cls,
            shape,
            body=body_of(shape),
            priority=shape.get("priority") or 0,
            tags=tuple(shape.get("tags") or ()),
            key=shape.get("key"),
            headers=shape.get("headers") or {},
        )
