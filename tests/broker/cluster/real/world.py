"""Three real members in one event loop, clients, and whatever can go wrong; from one seed.

Threads and the clock are real, so a seed says what is tried and not what comes of it: a failure is
looked for by running its seed again, more than once if need be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from delaylog.broker.calls.turn import receives
from delaylog.broker.engine.deliver.receives import receive
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.topics.settings import Backoff, TopicSettings
from delaylog.storage.layout import MessageState
from tests.broker.cluster.real.book import Message, Violation
from tests.broker.cluster.real.clients import TOPIC, Clients
from tests.broker.cluster.real.lives import SIZE
from tests.broker.cluster.real.members import Life, at_rest, contents, damage, unlike, until
from tests.broker.cluster.real.troubles import Troubles

SETTINGS = TopicSettings(
    max_retry=60_000, backoff=Backoff(first_ms=20, max_ms=60, jitter=0.0), ended_keep_ms=0
)


class World(Troubles, Clients):
    """A cluster, its clients and its troubles."""

    async def run(self, trouble: Callable[[], Awaitable[None]]) -> None:
        """Begin, have trouble, settle, judge. Raises what is wrong."""
        inner = receive

        def noted(*args: Any, **how: Any) -> Any:
            delivery = inner(*args, **how)
            for one in [] if delivery is None else delivery.apart():
                self.decided[one.lease] = self.loop.time()
            return delivery

        receives.receive = noted  # type: ignore[attr-defined]
        clients: list[asyncio.Task[None]] = []
        try:
            for node in range(SIZE):
                await self.begin(node)
            if not await until(lambda: bool(self.leaders())):
                raise Violation("nobody leads at the beginning")
            await self._set_topic()
            work: list[Callable[[], Awaitable[None]]] = [
                *(lambda at=at: self.sender(f"p{at}") for at in range(3)),
                *(lambda at=at: self.sender(f"e{at}") for at in range(self.eager)),
                lambda: self.consumer(patient=True),
                lambda: self.consumer(patient=False),
                lambda: self.consumer(patient=True),
                lambda: self.consumer(patient=False, idle=True),
                self.controller,
            ]
            clients = [self.loop.create_task(self.client(one)) for one in work]
            await trouble()
            self._raise()
            await self.calm()
            await self._judge(clients)
        finally:
            receives.receive = inner  # type: ignore[attr-defined]
            for task in clients:
                task.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
            for life in self.there():
                life.crash()
            await asyncio.sleep(0)

    async def _set_topic(self) -> None:
        async def put(life: Life) -> bool:
            life.node.engine.put_topic(TOPIC[1], SETTINGS, life.node.clock.now_ms())
            await life.node.durable(life.node.engine.state.position)
            return True

        while not await self.call(put):
            self._raise()

    def _raise(self) -> None:
        faults = [*self.faults, *self.network.faults]
        if faults:
            raise faults[0]

    async def calm(self) -> None:
        """End all trouble, and wait until everybody is back and the chosen node leads."""
        for disk in self.disks.values():
            disk.crash_at = 0
        self.network.heal()
        self.network.slow = 0.0
        if not await until(lambda: len(self.there()) == SIZE):
            self._raise()
            raise Violation("a node does not come back")
        chosen = self.random.randrange(SIZE)
        for disk in self.disks.values():
            disk.crash_at = 0

        def settled() -> bool:
            # A late word of before does not count.
            self.wanted = {chosen}
            return {life.number for life in self.leaders()} == self.wanted or bool(self.faults)

        if not await until(settled):
            roles = [life.member.replication for life in self.there()]
            raise Violation(f"nobody comes to lead in a calm: {[r and r.role for r in roles]}")
        self._raise()

    async def _judge(self, clients: list[asyncio.Task[None]]) -> None:
        self.over = True
        [leader] = self.leaders()
        now_ms = leader.node.clock.now_ms
        # Senders have to hear of their last send, or it is not known to be there.
        until_ms = now_ms() + 3_000

        def left() -> list[Message]:
            return [
                message
                for message in self.book.messages.values()
                if message.sent
                and message.ended is None
                and not message.maybe_ended
                and (not message.due_ms or max(message.due_ms) < until_ms)
            ]

        done = await until(lambda: (not left() and now_ms() > until_ms) or bool(self.faults))
        self.drained = True
        self._raise()
        if not done:
            raise Violation(f"{len(left())} never come: {self._told(left()[0])}")
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        self._raise()
        self.book.check_repeats()
        self._check_states(leader)
        await self._check_folders(leader)

    def _told(self, message: Message) -> str:
        """What the leaders know of a message."""
        known = []
        for life in self.leaders():
            _, topic, found, now_ms = self._found(life, message)
            known.append((life.number, now_ms, found[0], topic.default.ready.__len__()))
        return f"{message}; {known}"

    def _check_states(self, leader: Life) -> None:
        """What lives is what nobody has ended."""
        state, topic = leader.node.engine.state, leader.node.engine.topic(TOPIC[1])
        assert topic is not None
        now_ms = leader.node.clock.now_ms()
        for message in self.book.messages.values():
            if not message.sent:
                continue
            origins = np.array([message.origin], np.int64)
            found = find_origins(state, origins, topic, now_ms, topic.default)
            lives = bool(found.known[0]) and found.states[0] < MessageState.ACKED
            if message.ended is not None and lives:
                raise Violation(f"was {message.how} and lives: {self._told(message)}")
            if message.ended is None and not message.maybe_ended and not lives:
                raise Violation(f"{message.body!r} is lost: {message}")

    async def _check_folders(self, leader: Life) -> None:
        def same() -> bool:
            end = leader.files.physical.end_position
            return all(
                life.node.engine.state.position == end == life.member.committed()
                for life in self.there()
            )

        self.wanted = {leader.number}
        rest = False
        while not rest:
            if not await until(same):
                where = [
                    (life.number, life.node.engine.state.position, life.member.committed())
                    for life in self.there()
                ]
                raise Violation(f"followers do not catch up: {where}")
            lives = self.there()
            await at_rest(lives)
            # A lease may have ended meanwhile, which the leader writes down first.
            rest = same()
        hours = [contents(life) for life in lives]
        for one in hours[1:]:
            for hour in one.keys() & hours[0].keys():
                if one[hour] != hours[0][hour]:
                    parts = [a == b for a, b in zip(one[hour], hours[0][hour], strict=True)]
                    which = unlike(one[hour], hours[0][hour])
                    raise Violation(
                        f"hour {hour} differs in rows, records, states: {parts}; {which}"
                    )
        order = lives[:]
        self.random.shuffle(order)
        for life in order:
            try:
                async with asyncio.timeout(40):
                    await life.stop()
            except TimeoutError:
                raise Violation(f"node {life.number} does not stop at the end") from None
            self._raise()
        for life in lives:
            if found := damage(life.disk):
                raise Violation(f"the folder of node {life.number}: {found}")
