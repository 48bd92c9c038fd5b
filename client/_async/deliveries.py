"""AsyncPolls: where a subscription gets its messages from, by long polls.

A client over a network may stream them instead (`streams`, which is written by hand).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from delaylog.client._async.message import AsyncMessage
from delaylog.client.keywords import ReceiveKeywords

Messages: TypeAlias = list[AsyncMessage]


class AsyncPolls:
    """Long polls of one subscription."""

    def __init__(
        self,
        receive: Callable[..., Awaitable[Messages]],
        topic: str,
        members: ReceiveKeywords,
    ) -> None:
        self.receive = receive
        self.topic = topic
        self.members: Any = members

    begins_first = True
    """Whether the attempt at the first message of a fetch has begun with the delivery."""
    waited_s = 0.0
    """How long the oldest message of the last fetch had been here."""

    async def fetch(self) -> Messages:
        """Wait for messages; the list may be empty. Errors are those of a receive."""
        return await self.receive(self.topic, **self.members)

    async def arrived(self, unyielded: int) -> Messages:  # noqa: ARG002
        """Messages that came meanwhile; `unyielded` others were not yielded yet."""
        return []

    async def stop(self) -> Messages:
        """Ask for no more; returns what has arrived and was not fetched."""
        return []

    async def close(self) -> None:
        """Close the connection, if there is one of its own."""
