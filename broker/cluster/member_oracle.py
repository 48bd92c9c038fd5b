"""The oracle of a member, whose cluster may change while it runs.

`elections.py` makes its elections: with raftos, or for a cluster of one node.
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
        """The error that has ended its part, if any."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Numbers of refused datagrams, by reason."""


class Election(RunningOracle, Protocol):
    """An oracle that elects among members that may change."""

    def change_members(self, members: Mapping[int, Address]) -> bool:
        """Elect among these nodes from now on; False if that needs another `Election`."""


class MemberOracle:
    """Elects among the present voters; a lone node elects itself."""

    def __init__(
        self, make: Callable[[], Election], members: Callable[[], dict[int, Address]]
    ) -> None:
        """`members` = the UDP addresses of the nodes that elect, including this one."""
        self._make = make
        self._members = members
        self._inner = make()
        self._among = members()
        self._started = False
        self._changing: asyncio.Task[None] | None = None
        self.failure_of_change: Exception | None = None

    async def start(self) -> None:
        """Begin to take part in elections."""
        self._started = True
        await self._inner.start()

    async def stop(self) -> None:
        """Take no further part."""
        self._started = False
        if self._changing is not None:
            await asyncio.wait([self._changing])
        await self._inner.stop()

    def look(self) -> None:
        """Follow a change of members, unless an earlier change is in progress."""
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
            # The next poll ends the node for it.
            self.failure_of_change = error
        finally:
            self._changing = None

    @property
    def failure(self) -> Exception | None:
        """The error that has ended its part, if any."""
        return self.failure_of_change or self._inner.failure

    @property
    def refused(self) -> Mapping[str, int]:
        """Numbers of refused datagrams, by reason."""
        return self._inner.refused

    def suggests(self, now_ms: int) -> bool:
        """Whether this node should lead."""
        return self._inner.suggests(now_ms)

    def leader(self, now_ms: int) -> int | None:
        """The node that was elected, if known."""
        return self._inner.leader(now_ms)

    def resign(self, now_ms: int, until_ms: int) -> None:
        """Give up an election and stay out until then."""
        self._inner.resign(now_ms, until_ms)

    def transfer(self, target: int, now_ms: int) -> None:
        """Have the target elected."""
        self._inner.transfer(target, now_ms)
