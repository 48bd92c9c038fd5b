"""The answer of a call: bytes and their media type, for any carrier."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from delaylog.broker.host.open_streams import OpenStream


@dataclass(slots=True)
class Answer:
    """An HTTP status and a body."""

    body: bytes
    kind: str
    """Media type of the body."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers, such as `Retry-After` of a refusal. Those of a hot call's answer are not
    sent unless it is a refusal."""


@dataclass(slots=True)
class Stream:
    """A body that is generated while it is sent. If `pieces` raises, the carrier aborts the
    connection, so that the client notices that the body is incomplete.
    """

    pieces: AsyncGenerator[bytes, None]
    kind: str
    headers: Mapping[str, str] = field(default_factory=dict)
    flow: OpenStream | None = None
    """The flow of deliveries, or the live reads, that the pieces carry."""


@dataclass(slots=True)
class Duplex:
    """The call goes on as a WebSocket, which carries this flow of deliveries."""

    flow: OpenStream
    carry: Callable[..., Awaitable[Any]]
    """Serves it until it ends: takes the request, its id, and what notes the error that ends it."""


AnyAnswer: TypeAlias = "Answer | Stream | Duplex"
