"""Receives of one turn of the loop share one look-up, one LEASE frame and one write."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from delaylog.broker.calls.named_groups import the_group
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.callers import refuse
from delaylog.broker.engine.deliver.receiving import receive
from delaylog.broker.engine.deliver.selecting import ReceiveRequest
from delaylog.broker.engine.deliver.settling import Receipts, extend
from delaylog.broker.engine.model import Delivery
from delaylog.broker.host.waiters import Place, TopicKey, WaitKey
from delaylog.storage.log.levels import SHARED_LEASES

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

Looked: TypeAlias = "Delivery | Place | None"
"""What a look finds: messages; else the caller's place in the line of those who wait, taken before
anything can become ready unseen; None where the gate was closed, and nobody has looked.
"""
_Item: TypeAlias = "tuple[TopicKey, ReceiveCall, asyncio.Future[Looked]]"


def lease(node: Node, key: TopicKey, call: ReceiveCall, shares: Sequence[int]) -> list[Delivery]:
    """Lease what is ready to consumers that ask for the same; `shares` = how many each takes.

    The first consumers get a delivery each. Raises EngineError.
    """
    state = node.engine.state
    topic = state.topics.get(key)
    group = the_group(topic, call.group)
    if topic is None or group is None:
        return []
    lease_ms = call.lease_ms or topic.settings.lease_ms
    now_ms = node.clock.now_ms()
    if state.level < SHARED_LEASES:
        shares = shares[:1]
    asked = ReceiveRequest(sum(shares), now_ms, call.only, call.ids, shares)
    delivery = receive(state, topic, group, asked, lease_ms=lease_ms)
    if delivery is None:
        return []
    if group.has_ready:
        # Who finds something leaves the rest to the next ones; who finds nothing does not, or
        # they would wake each other for messages that are not for them.
        line = waiting_key(key, call)
        node.waiters.wake(line, group.free_count if line[1] is None else 1)
    return list(delivery.apart())


def waiting_key(key: TopicKey, call: ReceiveCall) -> WaitKey:
    """The line in which a receive waits."""
    return (*key, call.group), call.ids or call.only


class ReceiveMerger:
    """Collects the receives of a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Hashable, list[_Item]] = {}

    async def receive(self, key: TopicKey, call: ReceiveCall) -> Looked:
        """Lease what is ready. The lease is in the file when this returns."""
        future: asyncio.Future[Looked] = self._loop.create_future()
        self._add((key, call, future))
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                # What woke the consumer must wake another.
                self._node.waiters.wake(waiting_key(key, call))
            elif future.exception() is None:
                self._give_back(key, future.result())
            raise

    def _add(self, item: _Item) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        key, call, _ = item
        alike = (key, call.group, call.lease_ms, call.only, call.ids)
        self._waiting.setdefault(alike, []).append(item)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        node = self._node
        if any(not call.wait_ms for items in waiting.values() for _, call, _ in items):
            # Who does not wait is told of everything that is due: a send that was answered counts.
            node.run_due(unpaced=True)
        found: list[tuple[_Item, Delivery]] = []
        for items in waiting.values():
            found += self._lease([item for item in items if not item[2].done()])
        if not found:
            return

        def tell(error: BaseException | None) -> None:
            for (key, _, future), delivery in found:
                if future.done():
                    self._give_back(key, delivery)
                elif error is None:
                    future.set_result(delivery)
                else:
                    future.set_exception(error)

        # The lease is in the file before the answer is on the wire: a killed broker comes back
        # knowing who holds what. Its fsync is not waited for.
        if node.write_through():
            node.standing.appended(at_once=True)
            tell(None)
        else:
            node.when_durable(found[-1][1].position, tell)

    def _lease(self, items: list[_Item]) -> list[tuple[_Item, Delivery]]:
        node = self._node
        if not items:
            return []
        # The gate may have closed since it was asked.
        looks = node.standing.may_hand_out()
        key, call, _ = items[0]
        try:
            shares = [call.count_max for _, call, _ in items]
            deliveries = lease(node, key, call, shares) if looks else []
        except Exception as error:
            refuse([future for _, _, future in items], error)
            return []
        for item in items[len(deliveries) :]:
            if deliveries:
                # There may be more: what one look-up hands out is limited as one answer is.
                self._add(item)
            else:
                line = waiting_key(key, call)
                item[2].set_result(node.waiters.join(line, item[1].count_max) if looks else None)
        return list(zip(items, deliveries, strict=False))

    def _give_back(self, key: TopicKey, found: Looked) -> None:
        """The consumer went away before it was told: others get the messages at once."""
        node, state = self._node, self._node.engine.state
        if isinstance(found, Place):
            found.leave()
            return
        topic = state.topics.get(key)
        if found is not None and topic is not None and node.standing.may_turn():
            extend(state, topic, Receipts(found.lease), node.clock.now_ms(), lease_ms=0)
            node.appended()
            node.wake_ready()
