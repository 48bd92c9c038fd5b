"""What a call answers: bytes and their media type, for any carrier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Answer:
    """A status, as HTTP has it, and a body."""

    body: bytes
    kind: str
    """Media type of the body."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of a refusal: `Retry-After`, `Allow`."""


@dataclass(slots=True)
class Stream:
    """A body that is made while it is sent. One that ends by an error is no answer: the carrier
    ends the connection, so that the client sees that something is missing."""

    pieces: AsyncIterator[bytes]
    kind: str
