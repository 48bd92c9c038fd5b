"""The JSON form of messages: bodies, dataclasses from members, and the answer of a receive.

A body is text as it is; bytes that are no UTF-8 are in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, Self, TypeVar


def body_of(shape: Mapping[str, Any]) -> bytes:
    """The body of a JSON object that has `body` (text) or `body_base64`."""
    if "body_base64" in shape:
        return base64.b64decode(shape["body_base64"])
    return str(shape.get("body", "")).encode()


def with_body(shape: dict[str, Any], body: bytes | str) -> dict[str, Any]:
    """The JSON object with the body added: as text if it is str, otherwise as base64."""
    if isinstance(body, str):
        return shape | {"body": body}
    try:
        return shape | {"body": body.decode()}
    except UnicodeDecodeError:
        return shape | {"body_base64": base64.b64encode(body).decode()}


T = TypeVar("T")


def read_members(kind: type[T], shape: Mapping[str, Any], **made: Any) -> T:
    """Build a dataclass from JSON members of the same names; `made` has the converted fields.

    Members whose field has a default may be absent. Raises KeyError for another one.
    """
    of: Any = kind
    for name, is_needed in _members_of(of):
        if name not in made and (is_needed or name in shape):
            made[name] = shape[name]
    return kind(**made)


@cache
def _members_of(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The names of a dataclass's fields, and whether a value is needed."""
    return tuple(
        (each.name, each.default is MISSING and each.default_factory is MISSING)
        for each in fields(kind)
    )


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
