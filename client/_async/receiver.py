"""AsyncReceiver: receives from several shards concurrently.

A poll in progress is never abandoned, since it may have leased messages. A receive that has enough
messages leaves its other polls to the next receive with the same arguments; `close` ends them. A
forked child process has none of its parent's messages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias, Unpack

from delaylog.client._async.concurrency import (
    Background,
    Cancelled,
    Lock,
    Task,
    cancel,
    sleep,
    spawn,
    wait_all,
    wait_first,
)
from delaylog.client._async.link import AsyncLink
from delaylog.client._async.message import AsyncMessage
from delaylog.client.errors import ClientError
from delaylog.client.shards.receives import (
    ANSWER_S,
    PAUSE_S_MAX,
    REPOLL_S,
    SWEEP_S,
    FreeGatherings,
    Gathering,
    HowMuch,
    Wanted,
    is_never_valid,
    is_shard_failure,
    verdict,
)
from delaylog.client.shards.settlements import by_shard
from delaylog.client.shards.sharding import Topology

Poll: TypeAlias = "Task[tuple[list[AsyncMessage], float]]"


class AsyncReceiver:
    """The receives of one client. Each receive in progress owns one gathering."""

    def __init__(self, links: Sequence[AsyncLink], topology: Topology) -> None:
        self._links = links
        self._topology = topology
        self._begin()

    def _begin(self) -> None:
        self._process_id = os.getpid()
        self._lock = Lock()
        self._free = FreeGatherings[Poll]()
        self._giving = Background()
        self._sweeper: Task[None] | None = None
        """Runs while any gathering is unused."""

    async def receive(self, wanted: Wanted, **how_much: Unpack[HowMuch]) -> list[AsyncMessage]:
        """Lease up to `max` messages from any of the shards.

        Invalid arguments are passed to one shard, so that its broker refuses them as usual.
        """
        if len(self._links) == 1 or is_never_valid(how_much["max"]):
            return await self._links[0].receive(wanted, **how_much)
        if self._process_id != os.getpid():
            self._begin()
        with self._lock:
            gathering = self._free.take(wanted)
        try:
            if how_much["wait_ms"] > 0:
                return await self._gather(gathering, wanted, how_much)
            return await self._ask_in_turn(gathering, wanted, how_much)
        finally:
            with self._lock:
                self._free.give(wanted, gathering)
                if any(self._free.values()) and self._sweeper is None:
                    self._sweeper = spawn(self._sweep, "delaylog receive sweeper")

    async def close(self) -> None:
        """Return messages that no receive took.

        Polls in progress are waited for briefly, then cancelled, or end with their connections.
        """
        if self._process_id != os.getpid():
            return
        with self._lock:
            if self._sweeper is not None:
                self._sweeper.cancel()
            gatherings = [(wanted, each) for wanted, free in self._free.items() for each in free]
            self._free.clear()
        polls = [poll for _, gathering in gatherings for poll in gathering.polls.values()]
        await wait_all(polls, ANSWER_S)
        await cancel(polls)
        for wanted, gathering in gatherings:
            gathering.harvest_or_log(wanted)
            self._give_back(gathering.all_held())
        await self._giving.wait()

    async def _gather(
        self, gathering: Gathering[Poll], wanted: Wanted, how_much: HowMuch
    ) -> list[AsyncMessage]:
        """Poll all shards concurrently and wait for the first that has messages."""
        until_s = time.monotonic() + how_much["wait_ms"] / 1000
        errors: dict[int, ClientError] = {}
        again_s: dict[int, float] = {}
        while True:
            gathering.harvest(errors)
            if found := self._take(gathering, how_much["max"]):
                return found
            now_s = time.monotonic()
            left_s = until_s - now_s
            wrong = verdict(list(errors.values()), len(self._links))
            if wrong is not None and (left_s <= 0 or not is_shard_failure(wrong)):
                raise wrong
            if left_s <= 0:
                return []
            for at in self._topology.order():
                if at in errors:
                    if now_s < again_s.setdefault(at, now_s + REPOLL_S):
                        continue
                    del errors[at], again_s[at]
                if at not in gathering.polls:
                    wait_left_ms = round(left_s * 1000) or 1
                    left: HowMuch = {**how_much, "wait_ms": wait_left_ms}
                    gathering.polls[at] = self._poll(at, wanted, left)
            pause_s = min([left_s, PAUSE_S_MAX, *(at_s - now_s for at_s in again_s.values())])
            if gathering.polls:
                await wait_first(gathering.polls.values(), pause_s)
            else:
                await sleep(pause_s)

    async def _ask_in_turn(
        self, gathering: Gathering[Poll], wanted: Wanted, how_much: HowMuch
    ) -> list[AsyncMessage]:
        """Lease what is ready now, shard by shard, until there are `max` messages."""
        most = how_much["max"]
        errors: dict[int, ClientError] = {}
        gathering.harvest(errors)
        found = self._take(gathering, most)
        for at in self._topology.order():
            if len(found) >= most:
                break
            link = self._links[at]
            room: HowMuch = {**how_much, "max": most - len(found)}
            try:
                found += await link.receive(wanted, at_once=True, **room)
            except ClientError as error:
                errors[at] = error
            except Cancelled:
                # The caller never gets what the previous shards have leased, so return it.
                self._give_back(found)
                raise
        wrong = verdict(list(errors.values()), len(self._links))
        if wrong is None or found:
            return found
        raise wrong

    def _poll(self, at: int, wanted: Wanted, how_much: HowMuch) -> Poll:
        link = self._links[at]

        async def poll() -> tuple[list[AsyncMessage], float]:
            found = await link.receive(wanted, at_once=True, **how_much)
            return found, time.monotonic()

        return spawn(poll, f"delaylog receive {link.name}")

    async def _sweep(self) -> None:
        """Return messages that no receive took in time, while there may be any."""
        ends = False
        while not ends:
            await sleep(SWEEP_S)
            with self._lock:
                stale = self._free.stale(time.monotonic())
                ends = not self._free
                if ends:
                    self._sweeper = None
            self._give_back(stale)

    def _take(self, gathering: Gathering[Poll], max: int) -> list[AsyncMessage]:
        found, stale = gathering.take(max, time.monotonic())
        self._give_back(stale)
        return found

    def _give_back(self, messages: list[AsyncMessage]) -> None:
        for name, share in by_shard(messages).items():
            link = self._links[self._topology.at(name)]
            self._giving.begin(partial(link.give_back, share))
