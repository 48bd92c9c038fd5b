"""Clients of three members: they send, take, settle, cancel, reschedule, and note each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import numpy as np

from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.engine import changes
from delaylog.broker.engine.deliver.settlements import Receipts, ack, nack
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.lookup.find_messages import find_ids, find_origins
from delaylog.broker.engine.send.sends import send
from delaylog.storage.messages.batch import decode_send, encode_send
from tests.broker.cluster.real.book import Delivery, Message, Violation
from tests.broker.cluster.real.disks import DiskCrashed
from tests.broker.cluster.real.lives import Lives
from tests.broker.cluster.real.members import Life

TOPIC = ("default", "t")
FAR_MS = 3_600_000
PATIENCE_SECONDS = 0.8


class Clients(Lives):
    """Members with clients, who ask whoever leads and repeat what was not answered."""

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
        if not node.role.leading:
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
        delivery = await long_poll(life.node, TOPIC, call)
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
            if not node.role.leading:
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
                done = ack(state, topic, Receipts(lease, origins), now_ms)
            else:
                done = nack(
                    state, topic, Receipts(lease, origins), now_ms, delay_ms=random.choice((0, 30))
                )
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
        if not node.role.leading:
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
            result = changes.cancel(state, topic, found, now_ms)
            await life.node.durable(result.position)
            return result

        result = await self.call(cancel)
        if result is not None and result.codes[0] == changes.DONE:
            message.ended, message.how = self.loop.time(), "cancelled"

    async def _reschedule(self, message: Message, random: Random) -> None:
        ahead = random.choice((0, 50, 700))
        new = 0

        async def reschedule(life: Life) -> Any:
            nonlocal new
            state, topic, found, now_ms = self._found(life, message)
            new = now_ms + ahead
            message.due_ms.add(new)
            result = changes.reschedule(state, topic, found, now_ms, deliver_at_ms=new)
            await life.node.durable(result.position)
            return result

        result = await self.call(reschedule)
        if result is not None and result.codes[0] == changes.DONE and not message.maybe_ended:
            message.due_ms = {new}
