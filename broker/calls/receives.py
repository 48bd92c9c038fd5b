"""Receives of one turn of the loop share one look-up, one LEASE frame and one write."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from delaylog.broker.calls.places import the_group
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.tell import Told, refuse
from delaylog.broker.engine.model import Delivery
from delaylog.broker.engine.receiving import Asked, receive
from delaylog.broker.engine.settling import Receipts, extend
from delaylog.broker.waiters import TopicKey
from delaylog.storage.levels import SHARED_LEASES

if TYPE_CHECKING:
    from delaylog.broker.node import Node

Found: TypeAlias = "asyncio.Future[Delivery | None]"
_Item: TypeAlias = tuple[TopicKey, ReceiveCall, Found]


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
    together = [shares] if state.level >= SHARED_LEASES else [[share] for share in shares]
    out: list[Delivery] = []
    for each in together:
        asked = Asked(sum(each), now_ms, call.only, call.ids, each)
        delivery = receive(state, topic, group, asked, lease_ms=lease_ms)
        if delivery is None:
            break
        out += delivery.apart()
    if out and group.has_ready:
        # Who finds something leaves the rest to the next ones; who finds nothing does not, or
        # they would wake each other for messages that are not for them.
        node.waiters.wake(waiting_key(key, call), group.free_count)
    return out


def waiting_key(key: TopicKey, call: ReceiveCall) -> tuple[tuple[str, str, str], Hashable]:
    """The line in which a receive waits."""
    return (*key, call.group), call.ids or call.only


class ReceiveMerger:
    """Collects the receives of a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Hashable, list[_Item]] = {}

    async def receive(self, key: TopicKey, call: ReceiveCall) -> Delivery | None:
        """Lease what is ready; None if that is nothing. The lease is in the file."""
        future: Found = self._loop.create_future()
        self._add((key, call, future))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._give_back(key, future.result())
            # What woke the consumer must wake another.
            self._node.waiters.wake(waiting_key(key, call))
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
        found: list[tuple[Found, Delivery]] = []
        for items in waiting.values():
            found += self._lease([item for item in items if not item[2].done()])
        if not found:
            return
        # The lease is in the file before the answer is on the wire: a killed broker comes back
        # knowing who holds what. Its fsync is not waited for.
        told = Told([future for future, _ in found], [delivery for _, delivery in found])
        if node.write_through():
            node.standing.appended(at_once=True)
            told(None)
        else:
            node.when_durable(found[-1][1].position, told)

    def _lease(self, items: list[_Item]) -> list[tuple[Found, Delivery]]:
        futures = [future for _, _, future in items]
        try:
            # The gate may have closed since it was asked.
            open_ = bool(items) and self._node.standing.may_hand_out()
            shares = [call.count_max for _, call, _ in items]
            deliveries = lease(self._node, *items[0][:2], shares) if open_ else []
        except Exception as error:
            refuse(futures, error)
            return []
        for item in items[len(deliveries) :]:
            if deliveries:
                # There may be more: what one look-up hands out is limited as one answer is.
                self._add(item)
            else:
                item[2].set_result(None)
        return list(zip(futures, deliveries, strict=False))

    def _give_back(self, key: TopicKey, delivery: Delivery | None) -> None:
        """The consumer went away before it was told: others get the messages at once."""
        node, state = self._node, self._node.engine.state
        topic = state.topics.get(key)
        if delivery is not None and topic is not None and node.standing.may_turn():
            extend(state, topic, Receipts(delivery.lease), node.clock.now_ms(), lease_ms=0)
            node.appended()
            node.wake_ready()
