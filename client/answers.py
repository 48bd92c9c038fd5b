"""What calls answer and how they fail, as plain values.

The one rule: the three kinds of failure stay apart, because a caller must do something different
about each. Nothing here talks to the network.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class ClientError(Exception):
    """Base of everything a call raises on purpose."""


class NotReached(ClientError):
    """No connection was made, so nothing was done: call again later."""


class AnswerLost(ClientError):
    """The call may or may not have been carried out: repeat it only in an idempotent form."""


class ApiError(ClientError):
    """The broker refused the call with a problem document; nothing was done."""

    def __init__(
        self,
        status: int,
        problem: Mapping[str, Any],
        retry_after_s: float | None,
        location: str | None = None,
    ) -> None:
        self.status = status
        self.location = location
        """Of a 307: where the call is to go instead."""
        self.problem = dict(problem)
        self.code = str(problem.get("code", "unknown_error"))
        self.detail = str(problem.get("detail", problem.get("title", "")))
        self.field: str | None = problem.get("field")
        self.item: int | None = problem.get("item")
        self.state: str | None = problem.get("state")
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {self.code}: {self.detail}")


@dataclass(frozen=True, slots=True)
class Sent:
    """One accepted send: its id, its due time as the broker keeps it, and what merging did."""

    id: str
    deliver_at_ms: int
    result: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message under lease; `receipt` settles it."""

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


@dataclass(frozen=True, slots=True)
class Received:
    """The messages of one receive and the broker's clock when it leased them."""

    messages: list[Message]
    now_ms: int


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


def message_of(shape: Mapping[str, Any]) -> Message:
    """A received message from its JSON shape."""
    return Message(
        id=shape["id"],
        receipt=shape["receipt"],
        body=body_of(shape),
        deliver_at_ms=shape["deliver_at_ms"],
        attempts=shape["attempts"],
        lease_until_ms=shape["lease_until_ms"],
        priority=shape.get("priority") or 0,
        tags=tuple(shape.get("tags") or ()),
        key=shape.get("key"),
        headers=shape.get("headers") or {},
    )
