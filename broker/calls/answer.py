"""The answer of a call: bytes and their media type, for any carrier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Answer:
    """An HTTP status and a body."""

    body: bytes
    kind: str
    """Media type of the body."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of a refusal, such as `Retry-After` and `Allow`."""


@dataclass(slots=True)
class Stream:
    """A body that is generated while it is sent. If `pieces` raises, the carrier aborts the
    connection, so that the client notices that the body is incomplete.
    """

    pieces: AsyncIterator[bytes]
    kind: str
