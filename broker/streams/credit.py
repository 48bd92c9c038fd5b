"""The credit of a stream: how many messages, and how many of their bytes, it may lease."""

from __future__ import annotations

import asyncio

from delaylog.broker.calls.problems import Problem
from delaylog.contract.calls.streams import CREDIT_BYTES_MAX


class Credit:
    """A stream leases while both numbers are above 0. A message may exceed the bytes."""

    def __init__(self, messages: int, bytes_: int, messages_max: int) -> None:
        self.messages = messages
        self.bytes = bytes_
        """Below 0 if a message was larger than what was left."""
        self._messages_max = messages_max
        self._there = asyncio.Event()
        self._look()

    def __bool__(self) -> bool:
        return self.messages > 0 and self.bytes > 0

    def give(self, messages: int, bytes_: int) -> None:
        """Add to it. Raises a Problem if a client gives more than it can ever use."""
        messages, bytes_ = self.messages + messages, self.bytes + bytes_
        for name, now, most in (
            ("messages", messages, self._messages_max),
            ("bytes", bytes_, CREDIT_BYTES_MAX),
        ):
            if now > most:
                raise Problem(
                    "bad_request", f"the credit would be {now} {name}; it is at most {most}"
                )
        self.set(messages, bytes_)

    def set(self, messages: int, bytes_: int) -> None:
        """Replace it."""
        self.messages, self.bytes = messages, bytes_
        self._look()

    def take(self, messages: int, bytes_: int) -> None:
        """Subtract what was leased."""
        self.set(self.messages - messages, self.bytes - bytes_)

    async def wait(self, seconds: float) -> bool:
        """Wait until there is some, at most this long; returns whether there is."""
        if not self:
            try:
                async with asyncio.timeout(seconds):
                    await self._there.wait()
            except TimeoutError:
                return False
        return True

    def _look(self) -> None:
        if self:
            self._there.set()
        else:
            self._there.clear()
