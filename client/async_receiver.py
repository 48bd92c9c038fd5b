"""AsyncReceiver: one receive over several shards, asked all at once; the asyncio side.

The one rule: a poll that is under way is never thrown away, since it may have leased something. A
receive that has enough leaves its other polls to the next one of the same kind; `close` ends them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TypeAlias

from delaylog.client.async_link import AsyncLink
from delaylog.client.errors import ClientError
from delaylog.client.message import Message
from delaylog.client.receiving import (
    ANSWER_S,
    PAUSE_S_MAX,
    REPOLL_S,
    SWEEP_S,
    Gathering,
    Wanted,
    bearable,
    cannot_be,
    verdict,
)
from delaylog.client.settling import by_shard
from delaylog.client.sharding import Topology

log = logging.getLogger("delaylog.client")
Poll: TypeAlias = "asyncio.Task[tuple[list[Message], float]]"


class AsyncReceiver:
    """Receives of one client. It belongs to the loop that it is first used in."""

    def __init__(self, links: Sequence[AsyncLink], topology: Topology) -> None:
        self._links = links
        self._topology = topology
        self._free: dict[Wanted, list[Gathering[Poll]]] = {}
        self._giving: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    async def receive(
        self, wanted: Wanted, *, max: int, wait_ms: int, lease_ms: int | None
    ) -> list[Message]:
        """Up to `max` messages, of whichever shards have some.

        A wish that cannot be is left to one shard to refuse, as it is where there is one.
        """
        if len(self._links) == 1 or cannot_be(max, wait_ms):
            return await self._links[0].receive(wanted, max=max, wait_ms=wait_ms, lease_ms=lease_ms)
        free = self._free.get(wanted)
        gathering = free.pop() if free else Gathering[Poll]()
        try:
            if wait_ms > 0:
                return await self._gather(gathering, wanted, max, wait_ms, lease_ms)
            return await self._ask_in_turn(gathering, wanted, max, lease_ms)
        finally:
            # Looked up again: the list from before may have been dropped by another receive.
            if gathering.polls or gathering.held:
                self._free.setdefault(wanted, []).append(gathering)
                if self._sweeper is None or self._sweeper.done():
                    self._sweeper = asyncio.create_task(self._sweep())
            elif not self._free.get(wanted):
                self._free.pop(wanted, None)

    async def close(self) -> None:
        """End what is under way and give back what nobody took."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        gatherings = [each for free in self._free.values() for each in free]
        self._free.clear()
        polls = [poll for gathering in gatherings for poll in gathering.polls.values()]
        if polls:
            await asyncio.wait(polls, timeout=ANSWER_S)
        for poll in polls:
            poll.cancel()
        for gathering in gatherings:
            for poll in gathering.polls.values():
                done = (await asyncio.gather(poll, return_exceptions=True))[0]
                if not isinstance(done, BaseException):
                    gathering.keep(*done)
            self._give_back(gathering.all_held())
        while self._giving:
            await asyncio.gather(*self._giving, return_exceptions=True)

    async def _gather(
        self,
        gathering: Gathering[Poll],
        wanted: Wanted,
        max: int,
        wait_ms: int,
        lease_ms: int | None,
    ) -> list[Message]:
        """Ask all shards at once and wait for the first that has something."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        errors: dict[int, ClientError] = {}
        again_s: dict[int, float] = {}
        while True:
            self._harvest(gathering, errors)
            if found := self._take(gathering, max):
                return found
            now_s = loop.time()
            left_s = until_s - now_s
            wrong = verdict(list(errors.values()), len(self._links))
            if wrong is not None and (left_s <= 0 or not bearable(wrong)):
                raise wrong
            if left_s <= 0:
                return []
            for at in self._topology.order():
                if at in errors:
                    if now_s < again_s.setdefault(at, now_s + REPOLL_S):
                        continue
                    del errors[at], again_s[at]
                if at not in gathering.polls:
                    poll = self._poll(at, wanted, max, round(left_s * 1000) or 1, lease_ms)
                    gathering.polls[at] = asyncio.create_task(poll)
            pause_s = min([left_s, PAUSE_S_MAX, *(at_s - now_s for at_s in again_s.values())])
            if gathering.polls:
                await asyncio.wait(
                    gathering.polls.values(),
                    timeout=pause_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            else:
                await asyncio.sleep(pause_s)

    async def _ask_in_turn(
        self, gathering: Gathering[Poll], wanted: Wanted, max: int, lease_ms: int | None
    ) -> list[Message]:
        """What is ready now, from one shard after another until it is enough."""
        errors: dict[int, ClientError] = {}
        self._harvest(gathering, errors)
        found = self._take(gathering, max)
        for at in self._topology.order():
            if len(found) >= max:
                break
            link = self._links[at]
            room = max - len(found)
            try:
                found += await link.receive(wanted, max=room, wait_ms=0, lease_ms=lease_ms)
            except ClientError as error:
                errors[at] = error
            except asyncio.CancelledError:
                # Nobody gets what the shards before this one have leased to us.
                self._give_back(found)
                raise
        wrong = verdict(list(errors.values()), len(self._links))
        if wrong is None or found:
            return found
        raise wrong

    async def _poll(
        self, at: int, wanted: Wanted, max: int, wait_ms: int, lease_ms: int | None
    ) -> tuple[list[Message], float]:
        link = self._links[at]
        found = await link.receive(wanted, max=max, wait_ms=wait_ms, lease_ms=lease_ms)
        return found, asyncio.get_running_loop().time()

    def _harvest(self, gathering: Gathering[Poll], errors: dict[int, ClientError]) -> None:
        """Take in the polls that are done."""
        for at, poll in list(gathering.polls.items()):
            if not poll.done():
                continue
            del gathering.polls[at]
            if poll.cancelled():
                continue
            error = poll.exception()
            if error is None:
                gathering.keep(*poll.result())
            elif isinstance(error, ClientError):
                errors[at] = error
            else:
                raise error

    async def _sweep(self) -> None:
        """Give back what no receive came for, as long as there may be any."""
        while self._free:
            await asyncio.sleep(SWEEP_S)
            for wanted, free in list(self._free.items()):
                for gathering in free:
                    try:
                        self._harvest(gathering, {})
                    except Exception:
                        log.exception("a poll of %s failed", wanted.topic)
                    self._take(gathering, 0)
                self._free[wanted] = [each for each in free if each.polls or each.held]
                if not self._free[wanted]:
                    del self._free[wanted]

    def _take(self, gathering: Gathering[Poll], max: int) -> list[Message]:
        found, stale = gathering.take(max, asyncio.get_running_loop().time())
        self._give_back(stale)
        return found

    def _give_back(self, messages: list[Message]) -> None:
        for name, share in by_shard(messages).items():
            link = self._links[self._topology.at(name)]
            task = asyncio.create_task(link.give_back(share))
            self._giving.add(task)
            task.add_done_callback(self._giving.discard)
