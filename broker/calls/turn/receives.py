"""Merges the receives of one turn: alike ones share a look-up and a LEASE frame, all one write.

The answer is made in a later turn, and the process may be stopped in between for so long that
another node leads: whoever makes an answer asks `may_answer` first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from delaylog.broker.calls.places import the_group
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.askers import Asker, Awaited, refuse
from delaylog.broker.engine.deliver.receives import ReceiveRequest, receive
from delaylog.broker.engine.deliver.settlements import Receipts, extend
from delaylog.broker.engine.model import Delivery
from delaylog.broker.host.waiters import Place, TopicKey, WaitKey

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

GATE_SECONDS: Final = 0.25
"""A receive without `wait_ms` still waits this long for a cluster to permit deliveries."""

Looked: TypeAlias = "Delivery | Place | None"
"""The result of a look-up: messages, or else the caller's place in the queue of waiters, which it
enters before further messages can become ready. None if handing out was not permitted, so that
nothing was looked up.
"""
_Item: TypeAlias = "tuple[TopicKey, ReceiveCall, Asker[Looked]]"


def lease(node: Node, key: TopicKey, calls: Sequence[ReceiveCall]) -> list[Delivery]:
    """Lease ready messages to consumers whose requests differ in numbers of messages only.

    Returns one delivery for each of the first consumers, as far as the messages go. Raises
    EngineError.
    """
    state, call = node.engine.state, calls[0]
    state.holding.check()
    topic = state.topics.get(key)
    group = the_group(topic, call.group)
    if topic is None or group is None:
        return []
    lease_ms = call.lease_ms or topic.settings.lease_ms
    now_ms = node.clock.now_ms()
    shares, begins, consumers, addresses = list[int](), list[int | None](), list[str](), list[str]()
    for each in calls:
        shares.append(each.count_max)
        begins.append(each.begin)
        consumers.append(each.consumer)
        addresses.append(each.address)
    asked = ReceiveRequest(
        sum(shares),
        now_ms,
        call.only,
        call.ids,
        shares,
        begins,
        consumers,
        addresses,
        call.bytes_max,
    )
    delivery = receive(state, topic, group, asked, lease_ms=lease_ms)
    if delivery is None:
        return []
    if group.has_ready:
        # After a delivery, wake the next waiters for the remaining messages. Not after an empty
        # look-up: waiters would wake each other for messages that their filters reject.
        line = waiting_key(key, call)
        node.waiters.wake(line, group.free_count if line[1] is None else 1)
    return list(delivery.apart())


def waiting_key(key: TopicKey, call: ReceiveCall) -> WaitKey:
    """The queue in which a receive waits."""
    return (*key, call.group), call.ids or call.only


class ReceiveMerger:
    """Collects the receives of a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Hashable, list[_Item]] = {}
        self._until_ms = 0
        """Until when answers may hand out messages, as far as the role has been asked."""

    async def receive(self, key: TopicKey, call: ReceiveCall) -> Looked:
        """Lease ready messages. The lease is written to the log's file when this returns.

        None if handing out is not permitted any more: the messages are ready again.
        """
        asker: Awaited[Looked] = Awaited()
        future = asker.future
        self.add(key, call, asker)
        try:
            found = await future
        except asyncio.CancelledError:
            if future.cancelled():
                # Pass the consumer's wake-up on to another waiter.
                self._node.waiters.wake(waiting_key(key, call))
            elif future.exception() is None:
                self.give_back(key, future.result())
            raise
        if isinstance(found, Delivery) and not self.in_time():
            return found if await self.may_answer(key, found) else None
        return found

    async def may_answer(self, key: TopicKey, found: Delivery) -> bool:
        """Whether leased messages may be handed out now; else they are given back. Raises
        NotLeadingError.
        """
        may = False
        try:
            may = await self.may_hand_out()
        finally:
            if not may:
                self.give_back(key, found)
        return may

    async def may_hand_out(self) -> bool:
        """Whether messages that were leased before may be handed out now. Raises NotLeadingError.

        It waits for the gate, which a slow turn of the loop may find shut although the node leads.
        """
        return self.in_time() or await self._node.role.until_may_deliver(GATE_SECONDS)

    def in_time(self) -> bool:
        """Whether the gate has been open without a break since the lease."""
        now_ms = self._node.machine.boot_ms()
        if now_ms >= self._until_ms:
            self._until_ms = self._node.role.delivers_until_ms()
        return now_ms < self._until_ms

    def give_back(self, key: TopicKey, found: Looked) -> None:
        """The consumer gets no answer: make the messages ready for others at once."""
        node, state = self._node, self._node.engine.state
        if isinstance(found, Place):
            found.leave()
            return
        topic = state.topics.get(key)
        if found is not None and topic is not None and node.role.may_dispatch():
            extend(state, topic, Receipts(found.lease), node.clock.now_ms(), lease_ms=0)
            node.appended()
            node.wake_ready()

    def add(self, key: TopicKey, call: ReceiveCall, asker: Asker[Looked]) -> None:
        """As `receive`; the asker looks at `in_time` before it hands out what it is told.

        An asker that is gone when messages were leased for it is not told: they are given back.
        """
        if not self._waiting:
            self._loop.call_soon(self._flush)
        alike = (key, call.group, call.lease_ms, call.only, call.ids, call.bytes_max)
        self._waiting.setdefault(alike, []).append((key, call, asker))

    def _gains_nothing(self, key: TopicKey, call: ReceiveCall) -> bool:
        """Whether a call would get no more messages later: it is first in line and takes one."""
        plain = call.count_max == 1 and call.only is None and not call.ids
        return plain and not self._node.waiters.awaited((*key, call.group))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        node = self._node
        held = node.releases.holds_back
        if any(
            not call.wait_ms or (held and self._gains_nothing(key, call))
            for key, call, _ in chain(*waiting.values())
        ):
            # A receive that does not wait must see all due messages, including those of a send
            # that was answered before.
            node.run_due(unpaced=True)
        found: list[tuple[_Item, Delivery]] = []
        for items in waiting.values():
            found += self._lease([item for item in items if not item[2].gone])
        if not found:
            return

        def tell(error: BaseException | None) -> None:
            for (key, _, asker), delivery in found:
                if asker.gone:
                    self.give_back(key, delivery)
                elif error is None:
                    asker.tell(delivery)
                else:
                    asker.refuse(error)

        # The lease is in the file before the answer is sent, so that a killed broker knows all
        # leases after its restart. The answer does not wait for the fsync.
        if node.write_through():
            node.role.appended(at_once=True)
            tell(None)
        else:
            node.when_durable(found[-1][1].position, tell)

    def _lease(self, items: list[_Item]) -> list[tuple[_Item, Delivery]]:
        node = self._node
        if not items:
            return []
        # Deliveries may have been forbidden since the call checked this.
        looks = node.role.may_deliver()
        key, call, _ = items[0]
        try:
            deliveries = lease(node, key, [call for _, call, _ in items]) if looks else []
        except Exception as error:
            refuse([asker for _, _, asker in items], error)
            return []
        for item in items[len(deliveries) :]:
            if deliveries:
                # There may be more messages: one look-up is limited to the size of one answer.
                self.add(*item)
            else:
                line = waiting_key(key, call)
                item[2].tell(node.waiters.join(line, item[1].count_max) if looks else None)
        return list(zip(items, deliveries, strict=False))
