"""Three real members in one event loop, clients, and whatever can go wrong; from one seed.

Threads and the clock are real, so a seed says what is tried and not what comes of it: a failure is
looked for by running its seed again, more than once if need be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from delaylog.broker import handing_out
from delaylog.broker.engine import TopicSettings, control
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.finding import find_ids, find_origins
from delaylog.broker.engine.receiving import receive
from delaylog.broker.engine.sending import send
from delaylog.broker.engine.settings import Backoff
from delaylog.broker.engine.settling import ack, nack
from delaylog.broker.web import messages as web_messages
from delaylog.broker.web.shapes import ReceiveCall
from delaylog.storage.batch import decode_send, encode_send
from delaylog.storage.layout import MessageState
from tests.broker.cluster.real.book import Book, Delivery, Message, Violation
from tests.broker.cluster.real.disks import DiskCrashed, ThreadedDisk
from tests.broker.cluster.real.members import (
    Life,
    WildOracle,
    cluster,
    contents,
    damage,
    lose_ids,
    until,
)
from tests.broker.cluster.real.network import Network

SIZE = 3
TOPIC = ("default", "t")
FAR_MS = 3_600_000
SETTINGS = TopicSettings(
    max_retry=60_000, backoff=Backoff(first_ms=20, max_ms=60, jitter=0.0), ended_keep_ms=0
)
PATIENCE_SECONDS = 0.8
SURVIVALS = ("everything", "everything", "nothing", "prefix", "sectors")


class World:
    """A cluster, its clients and its troubles."""

    def __init__(self, folder: Path, seed: int, *, eager: int = 0) -> None:
        """`eager` = senders that never rest."""
        self.eager = eager
        folder.mkdir(exist_ok=True)
        self.folder, self.random = folder, Random(seed)
        self.loop = asyncio.get_running_loop()
        self.network = Network(Random(seed + 1))
        self.book = Book()
        self.lives: dict[int, Life | None] = dict.fromkeys(range(SIZE))
        self.disks = {node: ThreadedDisk(seed * 10 + node) for node in range(SIZE)}
        self.wanted: set[int] = {0}
        self.stubborn_until = dict.fromkeys(range(SIZE), 0.0)
        """A node that is cut off may think for a while that it is wanted."""
        self.faults: list[BaseException] = []
        self.over = False
        self.drained = False
        self.decided: dict[int, float] = {}
        self.starts = 0
        self.committed = dict.fromkeys(range(SIZE), 0)
        self.leaderships: set[tuple[int, int]] = set()
        self.did: dict[str, int] = {}
        self.oddities: list[dict[str, Any]] = []
        self.loop.set_exception_handler(self._odd)

    def _odd(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, DiskCrashed):
            self.oddities.append(context)
            self.faults.append(error or Violation(str(context)))

    def note(self, what: str) -> None:
        self.did[what] = self.did.get(what, 0) + 1

    # ------------------------------------------------------------------ lives

    async def begin(self, node: int) -> None:
        """Start a node, unless its disk goes off meanwhile."""
        self.starts += 1
        oracle = WildOracle(lambda: self._wants(node), lambda target: self._transfer(node, target))
        disk = self.disks[node]
        disk.sync_seconds = self.random.choice((0.0, 0.002, 0.006))
        ids = self.folder / f"ids{node}"
        try:
            life = Life(
                cluster(node, SIZE),
                disk,
                ids,
                self.network,
                oracle,
                seed=self.random.randrange(1 << 30),
                on_end=self._ended,
                needed=self._needed,
            )
            self.lives[node] = life
            await life.start()
        except DiskCrashed:
            self.note("crash at start")
            await self._crash(node)

    def _wants(self, node: int) -> bool:
        return node in self.wanted or self.loop.time() < self.stubborn_until[node]

    def _needed(self) -> int:
        """Log from here on may be asked for: a node that needs a copy is not what is tried here."""
        for life in self.there():
            self.committed[life.number] = life.member.committed()
        return min(self.committed.values())

    def _transfer(self, node: int, target: int) -> None:
        self.wanted.discard(node)
        self.wanted.add(target)

    def _ended(self, life: Life, error: BaseException) -> None:
        if life.disk.crashed:
            # Whatever it says about that: nobody hears it.
            self.loop.create_task(self._crash_of(life))
        else:
            self.faults.append(error)

    async def _crash_of(self, life: Life) -> None:
        if self.lives[life.number] is life:
            await self._crash(life.number)

    async def _crash(self, node: int, seconds: float | None = None) -> None:
        """The process, or the machine, is gone; it comes back later."""
        life, self.lives[node] = self.lives[node], None
        self.book.crashes.append((self.loop.time(), node))
        if life is not None:
            life.crash()
        disk = self.disks[node]
        disk.off()
        survival = self.random.choice(SURVIVALS)
        self.disks[node] = disk.on_again(survival, self.random.randrange(1 << 30))
        if self.random.random() < 0.15:
            lose_ids(self.folder / f"ids{node}")
        if self.random.random() < 0.1:
            self.disks[node].crash_at = self.random.randrange(1, 80)
        pause = self.random.random() * 0.8 if seconds is None else seconds
        await asyncio.sleep(pause)
        await self.begin(node)

    def there(self) -> list[Life]:
        return [life for life in self.lives.values() if life is not None and not life.over]

    def leaders(self) -> list[Life]:
        found = [life for life in self.there() if life.leading]
        for life in found:
            self.leaderships.add((life.number, life.node.engine.state.epoch))
        return found

    # ------------------------------------------------------------------ troubles

    async def trouble(self, seconds: float) -> None:
        """One thing after the other goes wrong."""
        acts: list[tuple[int, Callable[[], Awaitable[None] | None]]] = [
            (5, self._suggest),
            (4, self._kill),
            (3, self._fail_soon),
            (4, self._isolate),
            (3, self._hand_over),
            (2, self._restart),
            (2, self._break_link),
            (3, self._checkpoint),
            (1, self._slow),
        ]
        end = self.loop.time() + seconds
        weights = [weight for weight, _ in acts]
        tasks: set[asyncio.Task[None]] = set()
        while self.loop.time() < end and not self.faults:
            await asyncio.sleep(self.random.choice((0.05, 0.2, 0.5)) * (0.5 + self.random.random()))
            (_, act) = self.random.choices(acts, weights)[0]
            self.note(act.__name__)
            done = act()
            if done is not None:
                task = self.loop.create_task(done)  # type: ignore[arg-type]
                tasks.add(task)
        for task in tasks:
            try:
                async with asyncio.timeout(15):
                    await task
            except TimeoutError:
                self.faults.append(Violation(f"{task} does not end"))

    def _suggest(self) -> None:
        count = self.random.choice((0, 1, 1, 1, 1, 2))
        self.wanted = set(self.random.sample(range(SIZE), count))
        if count == 0:
            self.loop.call_later(0.3, self.wanted.add, self.random.randrange(SIZE))

    async def _kill(self) -> None:
        alive = self.there()
        if len(alive) >= 2:
            leaders = self.leaders()
            life = self.random.choice(leaders if leaders and self.random.random() < 0.6 else alive)
            if life.leading:
                self.wanted = {self.random.randrange(SIZE)}
            await self._crash(life.number)

    def _fail_soon(self) -> None:
        """At some operation of a disk that is to come."""
        alive = self.there()
        if len(alive) == SIZE:
            disk = self.disks[self.random.choice(alive).number]
            disk.crash_at = disk.count + self.random.randrange(1, 60)

    async def _isolate(self) -> None:
        node = self.random.randrange(SIZE)
        others = [other for other in range(SIZE) if other != node]
        if self.random.random() < 0.3:
            others = [self.random.choice(others)]
        if node in self.wanted:
            self.stubborn_until[node] = self.loop.time() + self.random.random()
        self.network.isolate(node, others)
        if self.random.random() < 0.7:
            await asyncio.sleep(self.random.random() * 0.4)
            self.wanted = {self.random.choice([n for n in range(SIZE) if n != node])}
        await asyncio.sleep(self.random.random() * 0.6)
        self.network.heal()

    async def _hand_over(self) -> None:
        for life in self.leaders():
            target = self.random.choice([None, *(n for n in range(SIZE) if n != life.number)])
            with suppress(NotLeadingError, DiskCrashed):
                async with asyncio.timeout(3):
                    if await self._while(life, life.member.hand_over(target)) is not None:
                        self.note("handed over")

    async def _while(self, life: Life, work: Awaitable[Any]) -> Any:
        """Wait for what a node does, as long as it is there."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait([task], timeout=0.05)
            if life.over:
                task.cancel()
                return None
        return task.result()

    async def _restart(self) -> None:
        alive = self.there()
        if len(alive) < SIZE:
            return
        life = self.random.choice(alive)
        task = asyncio.ensure_future(life.stop())
        for _ in range(160):
            await asyncio.wait([task], timeout=0.05)
            if task.done() or self.lives[life.number] is not life:
                break
        if self.lives[life.number] is not life:
            task.cancel()
            return
        if not task.done():
            raise Violation(f"node {life.number} does not stop")
        if (error := task.exception()) is not None:
            if isinstance(error, DiskCrashed):
                await self._crash(life.number)
                return
            raise error
        self.lives[life.number] = None
        self.book.crashes.append((self.loop.time(), life.number))
        await asyncio.sleep(self.random.random() * 0.3)
        await self.begin(life.number)

    def _break_link(self) -> None:
        self.network.break_link(*self.random.sample(range(SIZE), 2))

    def _checkpoint(self) -> None:
        for life in self.there():
            if self.random.random() < 0.6:
                life.node.spawn("checkpoint", life.node.checkpoint_work)
                life.node.spawn("flush", lambda life=life: life.node.engine.flush_work())

    async def _slow(self) -> None:
        self.network.slow = 0.02
        await asyncio.sleep(0.5)
        self.network.slow = 0.0

    # ------------------------------------------------------------------ clients

    async def call(self, do: Callable[[Life], Awaitable[Any]], life: Life | None = None) -> Any:
        """Ask a leader; None where there was no answer."""
        if life is None:
            leaders = self.leaders()
            if not leaders:
                await asyncio.sleep(0.01)
                return None
            life = self.random.choice(leaders)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                out = await do(life)
        except (NotLeadingError, TimeoutError, DiskCrashed):
            await asyncio.sleep(0.01)
            return None
        # A node that is gone by now has not answered.
        return None if life.over else out

    async def client(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                self.faults.append(error)
            raise

    async def sender(self, name: str) -> None:
        random = Random(f"{name} {self.random.random()}")
        number = 0
        while not self.over:
            number += 1
            count = random.choice((1, 1, 3, 12))
            bodies = [f"{name}.{number}.{k}|".encode() + b"x" * 200 for k in range(count)]
            names = ["" if random.random() < 0.3 else f"{name}.{number}.{k}" for k in range(count)]
            delays = [random.choice((0, 0, 20, 150, 900, 2_500, FAR_MS)) for _ in range(count)]
            mine = [Message(body, text) for body, text in zip(bodies, names, strict=True)]
            self.book.messages.update((message.body, message) for message in mine)
            columns = {
                "n": count,
                "bodies": b"".join(bodies),
                "body_size": np.array([len(body) for body in bodies]),
                "id": "".join(names).encode(),
                "id_size": np.array([len(text) for text in names]),
                "delay_ms": np.array(delays, np.int64),
                "producer": name,
                "sequence": number,
            }
            wire = encode_send(columns)
            while not self.over:
                result = await self.call(lambda life, wire=wire: self._send(life, wire))
                if result is not None:
                    break
            else:
                return
            for message, origin, due in zip(
                mine, result.refs.tolist(), result.deliver_at_ms.tolist(), strict=True
            ):
                if message.origin not in (0, origin):
                    raise Violation(f"{message.body!r} is there twice")
                message.origin, message.sent = origin, True
                message.due_ms = {due}
            if not name.startswith("e"):
                await asyncio.sleep(random.random() * 0.03)

    async def _send(self, life: Life, wire: bytes) -> Any:
        node = life.node
        if not node.standing.leading:
            raise NotLeadingError("not here")
        await node.room()
        now_ms = node.clock.now_ms()
        batch = decode_send(wire, rows_max=100)
        topic = node.engine.make_topic(TOPIC[1], now_ms, TOPIC[0])
        result = send(node.engine.state, topic, batch, now_ms, free_bytes=1 << 60)
        await node.durable(result.position)
        return result

    async def consumer(self, *, patient: bool, idle: bool = False) -> None:
        """`idle` = it takes one after the other and does nothing with them."""
        random = Random(self.random.random())
        while not self.drained:
            wait_ms = 0 if not patient else random.choice((0, 50, 400))
            lease_ms = random.choice((150, 400, 1_500)) if not self.over else 2_500
            count = 1 if idle else random.choice((1, 4, 40))
            call = ReceiveCall(count, wait_ms, lease_ms, frozenset(), "default")
            got = await self.call(lambda life, call=call: self._receive(life, call))
            if not got:
                await asyncio.sleep(0.004)
                continue
            if idle and not self.over:
                await asyncio.sleep(0.005)
            else:
                await self._settle(got, random)

    async def _receive(self, life: Life, call: ReceiveCall) -> Any:
        if not life.leading:
            raise NotLeadingError("not here")
        ctx: Any = SimpleNamespace(node=life.node, topic_key=TOPIC)
        delivery = await web_messages.receive_or_wait(ctx, call)
        if delivery is None or life.over:
            return None
        out, at = [], 0
        now_ms = life.node.clock.now_ms()
        decided = self.decided.pop(delivery.lease)
        for k, row in enumerate(delivery.rows):
            record = delivery.records[at : at + int(row["size"])]
            at += len(record)
            head = sum(
                int(row[name]) for name in ("id_size", "key_size", "tags_size", "headers_size")
            )
            origin = int(delivery.origins[k])
            one = Delivery(decided, life.number, delivery.lease, delivery.lease_until_ms, origin)
            due_ms = int(row["deliver_at"])
            body = bytes(record[head:])
            self.book.delivered(body, one, now_ms=now_ms, due_ms=due_ms, wall_ms=now_ms)
            out.append((body, origin))
        return delivery.lease, out

    async def _settle(self, got: Any, random: Random) -> None:
        lease, items = got
        what = "ack" if self.over else random.choice(("ack", "ack", "ack", "nack", "nothing"))
        if what == "nothing":
            return
        if not self.over:
            await asyncio.sleep(random.choice((0.0, 0.0, 0.02, 0.1)))
        origins = np.array([origin for _, origin in items], np.int64)
        mine = [self.book.messages[body] for body, _ in items]

        async def settle(life: Life) -> Any:
            node = life.node
            if not node.standing.leading:
                raise NotLeadingError("not here")
            state, now_ms = node.engine.state, node.clock.now_ms()
            topic = node.engine.topic(TOPIC[1])
            assert topic is not None
            for message in mine:
                if what == "nack":
                    message.touched.add(lease)
                else:
                    message.maybe_ended = True
            if what == "ack":
                done = ack(state, topic, lease, origins, now_ms)
            else:
                done = nack(state, topic, lease, origins, now_ms, delay_ms=random.choice((0, 30)))
            await node.durable(done.position)
            return done

        for _ in range(random.choice((1, 3))):
            done = await self.call(settle)
            if done is not None:
                break
        if done is not None and what == "ack" and done.done == len(items):
            for message in mine:
                if message.ended is None:
                    message.ended, message.how = self.loop.time(), "acked"

    async def controller(self) -> None:
        random = Random(self.random.random())
        while not self.over:
            await asyncio.sleep(random.random() * 0.05)
            able = [m for m in self.book.messages.values() if m.sent and m.ended is None]
            if not able:
                continue
            message = random.choice(able[-60:])
            act = self._cancel if random.random() < 0.4 else self._reschedule
            await act(message, random)

    def _found(self, life: Life, message: Message) -> Any:
        node = life.node
        if not node.standing.leading:
            raise NotLeadingError("not here")
        state, now_ms = node.engine.state, node.clock.now_ms()
        topic = node.engine.topic(TOPIC[1])
        assert topic is not None
        if message.id:
            return state, topic, find_ids(state, topic, [message.id], now_ms), now_ms
        origins = np.array([message.origin], np.int64)
        return state, topic, find_origins(state, origins, topic, now_ms, topic.default), now_ms

    async def _cancel(self, message: Message, random: Random) -> None:
        async def cancel(life: Life) -> Any:
            state, topic, found, now_ms = self._found(life, message)
            message.maybe_ended = True
            result = control.cancel(state, topic, found, now_ms)
            await life.node.durable(result.position)
            return result

        result = await self.call(cancel)
        if result is not None and result.codes[0] == control.DONE:
            message.ended, message.how = self.loop.time(), "cancelled"

    async def _reschedule(self, message: Message, random: Random) -> None:
        ahead = random.choice((0, 50, 700))
        new = 0

        async def reschedule(life: Life) -> Any:
            nonlocal new
            state, topic, found, now_ms = self._found(life, message)
            new = now_ms + ahead
            message.due_ms.add(new)
            result = control.reschedule(state, topic, found, now_ms, deliver_at_ms=new)
            await life.node.durable(result.position)
            return result

        result = await self.call(reschedule)
        if result is not None and result.codes[0] == control.DONE and not message.maybe_ended:
            message.due_ms = {new}

    # ------------------------------------------------------------------ a whole course

    async def run(self, trouble: Callable[[], Awaitable[None]]) -> None:
        """Begin, have trouble, settle, judge. Raises what is wrong."""
        inner = receive

        def noted(*args: Any, **how: Any) -> Any:
            delivery = inner(*args, **how)
            if delivery is not None:
                self.decided[delivery.lease] = self.loop.time()
            return delivery

        handing_out.receive = noted  # type: ignore[attr-defined]
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
            await self._calm()
            await self._judge(clients)
        finally:
            handing_out.receive = inner  # type: ignore[attr-defined]
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

    async def _calm(self) -> None:
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

        done = await until(lambda: (not left() and now_ms() > until_ms) or bool(self.faults), 15)
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
                raise Violation(f"{message.body!r} was {message.how} and lives")
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
        if not await until(same, 8):
            where = [
                (life.number, life.node.engine.state.position, life.member.committed())
                for life in self.there()
            ]
            raise Violation(f"followers do not catch up: {where}")
        lives = self.there()
        hours = [contents(life) for life in lives]
        for one in hours[1:]:
            for hour in one.keys() & hours[0].keys():
                if one[hour] != hours[0][hour]:
                    parts = [a == b for a, b in zip(one[hour], hours[0][hour], strict=True)]
                    raise Violation(f"hour {hour} differs in rows, records, states: {parts}")
        order = lives[:]
        self.random.shuffle(order)
        for life in order:
            try:
                async with asyncio.timeout(12):
                    await life.stop()
            except TimeoutError:
                raise Violation(f"node {life.number} does not stop at the end") from None
            self._raise()
        for life in lives:
            if found := damage(life.disk):
                raise Violation(f"the folder of node {life.number}: {found}")
