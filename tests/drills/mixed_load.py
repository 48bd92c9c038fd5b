"""The load of the kill loop: everything a client may do, at random from a seed, all at once.

It knows what it sent over all rounds, so that it can cancel, reschedule and send again what an
earlier broker run accepted. Its one rule: a message due in the far future always has an id that is
or will be known here, so that the end can cancel it or bring it near; nothing is left behind that
only time would deliver.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random

from recorded_calls import Known, Leased, Pending, RecordedCalls, now_ms

TOPICS = ("orders", "mails")
HOUR_MS = 3_600_000
FAR_HOURS = (1, 2, 3, 24, 168, 720)
"""Few, so that a checkpoint, which syncs every hour that was touched, fits into a round."""
LEASE_MS_RANGE = (300, 1_500)
KNOWN_MAX = 2_000
KEYS = 12
"""Few, so that messages of a key meet."""
RETRIES_MAX = 60_000
"""Messages are taken and dropped at every kill; none may die of it."""

Step = Callable[[RecordedCalls, Random], Awaitable[None]]


class MixedLoad:
    """Clients that go on from broker run to broker run."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._round = 0
        self._made = 0
        self._sequence = 0
        self._known: deque[Known] = deque(maxlen=KNOWN_MAX)
        self._own_ids: deque[Known] = deque(maxlen=KNOWN_MAX)
        self._far: dict[str, Known] = {}
        self._pending: deque[Pending] = deque()
        self.stopping = False

    @property
    def messages_made(self) -> int:
        """Bodies made so far, whatever became of them."""
        return self._made

    async def run(self, calls: RecordedCalls) -> None:
        """One round: until `stopping`, by when the broker is gone and every call has ended."""
        self._round += 1
        self.stopping = False
        steps: list[Step] = [
            *(self._send_one, self._send_one, self._send_bulk, self._change),
            *(self._receive, self._receive, self._receive_bulk),
        ]
        workers = (self._work(calls, step, number) for number, step in enumerate(steps))
        await asyncio.gather(*workers)

    async def finish(self, calls: RecordedCalls) -> None:
        """With a broker that stays: settle what is open, and bring near or cancel what is far."""
        random = Random(f"{self._seed} end")
        while self._pending:
            await self._send_pending(calls)
        for topic in TOPICS:
            ids = [known.id for known in self._far.values() if known.topic == topic]
            random.shuffle(ids)
            for first in range(0, len(ids), 1_000):
                due_ms = None if first % 2_000 else now_ms() + random.randint(500, 1_500)
                await calls.change_bulk(topic, ids[first : first + 1_000], due_ms)
        self._far.clear()

    async def drain_step(self, calls: RecordedCalls) -> int:
        """Receive and ack what is there now; how many it was."""
        count = 0
        for topic in TOPICS:
            lease, leased = await calls.receive_bulk(topic, 1_000, 50, 5_000)
            await calls.ack_lease(lease, leased)
            count += len(leased)
        return count

    async def _work(self, calls: RecordedCalls, step: Step, number: int) -> None:
        random = Random(f"{self._seed} {self._round} {number}")
        while not self.stopping:
            await step(calls, random)
            await asyncio.sleep(random.random() * 0.02)

    # Sending

    async def _send_one(self, calls: RecordedCalls, random: Random) -> None:
        topic = random.choice(TOPICS)
        kind = random.random()
        if kind < 0.3:
            if self._pending and random.random() < 0.7:
                await self._send_pending(calls)
                return
            due_ms = self._due_ms(random, far_share=0.15)
            token = f"key-{self._seed}-{self._made}"
            self._pending.append(Pending(topic, due_ms, [self._body(random)], token, None))
            await self._send_pending(calls)
        elif kind < 0.6:
            due_ms = self._due_ms(random, far_share=0.0)
            key = f"{topic}-{random.randrange(KEYS)}"
            self._note(await calls.send(topic, self._body(random), due_ms, None, key), due_ms)
        else:
            due_ms = self._due_ms(random, far_share=0.15)
            body = self._body(random)
            own = Known(topic, f"own-{self._seed}-{self._made}")
            if self._own_ids and random.random() < 0.2:
                # A second send under an id that is used: merged if it lives, a new one if not.
                own = random.choice(self._own_ids)
            self._own_ids.append(own)
            self._note(await calls.send(own.topic, body, due_ms, own.id), due_ms)

    async def _send_bulk(self, calls: RecordedCalls, random: Random) -> None:
        topic = random.choice(TOPICS)
        bodies = [self._body(random) for _ in range(random.randint(1, 120))]
        if random.random() < 0.4:
            self._sequence += 1
            due_ms = self._due_ms(random, far_share=0.2)
            token = f"producer-{self._seed}"
            self._pending.append(Pending(topic, due_ms, bodies, token, self._sequence))
            await self._send_pending(calls)
            return
        ids = None
        far_share = 0.0
        if random.random() < 0.6:
            ids = [f"own-{self._seed}-{self._made}-{row}" for row in range(len(bodies))]
            far_share = 0.3
        dues_ms = [self._due_ms(random, far_share) for _ in bodies]
        known = await calls.send_bulk(topic, bodies, dues_ms, ids)
        for each, due_ms in zip(known, dues_ms, strict=bool(known)):
            self._note(each, due_ms)
        await asyncio.sleep(random.random() * 0.03)

    async def _send_pending(self, calls: RecordedCalls) -> None:
        pending = self._pending.popleft()
        known = await calls.send_once(pending)
        if known is None:
            self._pending.append(pending)
        for each in known or ():
            self._note(each, pending.due_ms)

    def _note(self, known: Known | None, due_ms: int) -> None:
        if known is None:
            return
        self._known.append(known)
        if due_ms > now_ms() + HOUR_MS // 2:
            self._far[known.id] = known

    def _body(self, random: Random) -> bytes:
        self._made += 1
        return (
            f"{self._seed}-{self._made}-".encode()
            + random.randbytes(random.randint(0, 150)).hex().encode()
        )

    def _due_ms(self, random: Random, far_share: float) -> int:
        kind = random.random()
        if kind < far_share:
            return now_ms() + random.choice(FAR_HOURS) * HOUR_MS + random.randrange(HOUR_MS)
        if kind > 0.85:
            return now_ms() - random.randint(0, 1_000)
        return now_ms() + random.randint(1, 2_500)

    # Receiving and changing

    async def _receive(self, calls: RecordedCalls, random: Random) -> None:
        lease_ms = random.randint(*LEASE_MS_RANGE)
        wait_ms = random.choice((0, 50, 2_000))
        most = random.choice((1, 10, 50))
        leased = await calls.receive(random.choice(TOPICS), most, wait_ms, lease_ms)
        await self._settle(calls, random, leased)

    async def _receive_bulk(self, calls: RecordedCalls, random: Random) -> None:
        lease_ms = random.randint(*LEASE_MS_RANGE)
        topic = random.choice(TOPICS)
        lease, leased = await calls.receive_bulk(topic, 500, random.choice((0, 100)), lease_ms)
        if random.random() < 0.7:
            await calls.ack_lease(lease, leased)
        else:
            await self._settle(calls, random, leased)

    async def _settle(self, calls: RecordedCalls, random: Random, leased: list[Leased]) -> None:
        """Most are acked, some given back now or later, some extended, some forgotten."""
        parts: dict[str, list[Leased]] = {}
        verbs = random.choices(
            ("ack", "nack now", "nack later", "nack", "extend", "give back", "forget"),
            (75, 5, 5, 3, 3, 2, 7),
            k=len(leased),
        )
        for verb, each in zip(verbs, leased, strict=True):
            parts.setdefault(verb, []).append(each)
        await calls.settle("ack", parts.get("ack", ()))
        await calls.settle("nack", parts.get("nack now", ()), delay_ms=0)
        await calls.settle("nack", parts.get("nack later", ()), delay_ms=random.randint(50, 1_000))
        await calls.settle("nack", parts.get("nack", ()))
        await calls.settle("extend", parts.get("give back", ()), lease_ms=0)
        extended = parts.get("extend", ())
        # Longer than any lease here has left: an extension that shortens would be another matter.
        await calls.settle("extend", extended, lease_ms=LEASE_MS_RANGE[1] + random.randint(1, 500))
        if random.random() < 0.5:
            await calls.settle("ack", extended)

    async def _change(self, calls: RecordedCalls, random: Random) -> None:
        if not self._known:
            return
        pool = list(self._far.values()) if self._far and random.random() < 0.3 else self._known
        known = random.choice(pool)
        kind = random.random()
        if kind < 0.45:
            if await calls.cancel(known):
                self._far.pop(known.id, None)
        elif kind < 0.9:
            due_ms = now_ms() + random.randint(1, 2_000)
            if random.random() < 0.2:
                due_ms += random.choice(FAR_HOURS) * HOUR_MS
                self._far[known.id] = known
            await calls.reschedule(known, due_ms)
        else:
            others = random.choices(pool, k=20)
            some = {known.id, *(each.id for each in others if each.topic == known.topic)}
            due_ms = now_ms() + random.randint(500, 2_000)
            await calls.change_bulk(known.topic, sorted(some), random.choice((None, due_ms)))
