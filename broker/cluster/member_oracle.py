"""The oracle of a member, whose cluster may change while it runs.

`elections.py` makes the elections: by raftos, or of the only node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from delaylog.broker.cluster.config import Address
from delaylog.replication.oracle import LeaderOracle


class RunningOracle(LeaderOracle, Protocol):
    """An oracle that lives in the event loop."""

    async def start(self) -> None:
        """Take part."""

    async def stop(self) -> None:
        """Take no further part."""

    @property
    def failure(self) -> Exception | None:
        """Why it takes no part any more."""

    @property
    def refused(self) -> Mapping[str, int]:
        """How many datagrams were refused, by reason."""


class Election(RunningOracle, Protocol):
    """One that elects among members that may change."""

    def change_members(self, members: Mapping[int, Address]) -> bool:
        """Elect among these from now on; False if that takes another oracle."""


class MemberOracle:
    """Elects among the members that decide, however they change; a lone node elects itself."""

    def __init__(
        self, make: Callable[[], Election], members: Callable[[], dict[int, Address]]
    ) -> None:
        """`members` = the UDP addresses of those who elect, this node included."""
        self._make = make
        self._members = members
        self._inner = make()
        self._among = members()
        self._started = False
        self._changing: asyncio.Task[None] | None = None
        self.failure_of_change: Exception | None = None

    async def start(self) -> None:
        """Take part."""
        self._started = True
        await self._inner.start()

    async def stop(self) -> None:
        """Take no further part."""
        self._started = False
        if self._changing is not None:
            await asyncio.wait([self._changing])
        await self._inner.stop()

    def look(self) -> None:
        """The members may be others. Nothing happens while an earlier change is under way."""
        members = self._members()
        if members == self._among or self._changing is not None or not self._started:
            return
        self._among = members
        if not self._inner.change_members(members):
            self._changing = asyncio.get_running_loop().create_task(self._exchange())

    async def _exchange(self) -> None:
        try:
            await self._inner.stop()
            self._inner = self._make()
            if self._started:
                await self._inner.start()
        except Exception as error:
            # The node stops for it at its next look.
            self.failure_of_change = error
        finally:
            self._changing = None

    @property
    def failure(self) -> Exception | None:
        """Why it takes no part any more."""
        return self.failure_of_change or self._inner.failure

    @property
    def refused(self) -> Mapping[str, int]:
        """How many datagrams were refused, by reason."""
        return self._inner.refused

    def suggests(self, now_ms: int) -> bool:
        """Whether this node is chosen."""
        return self._inner.suggests(now_ms)

    def leader(self, now_ms: int) -> int | None:
        """Who is chosen, as far as is known."""
        return self._inner.leader(now_ms)

    def resign(self, now_ms: int, until_ms: int) -> None:
        """Let others be chosen."""
        self._inner.resign(now_ms, until_ms)

    def transfer(self, target: int, now_ms: int) -> None:
        """Have another one chosen."""
        self._inner.transfer(target, now_ms)
