"""Sends, receives and settles, one call at a time. A server merges those of a turn instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.receives import Looked, lease, waiting_key
from delaylog.broker.calls.turn.settles import outcomes
from delaylog.broker.calls.turn.single_sends import Part
from delaylog.broker.calls.turn.writes import Settling, send_parts
from delaylog.broker.engine.deliver.settling import Receipts
from delaylog.broker.engine.model import SendResult, Settlement
from delaylog.broker.host.waiters import TopicKey
from delaylog.replication.leading.leader import Acks

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


class DirectSends:
    """Sends of single messages and of batches."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def send(
        self, key: TopicKey, part: Part, acks: Acks | None = None
    ) -> tuple[SendResult, int]:
        """Send one caller's part; return the result, and the first row of the part in it: 0."""
        node = self._node
        if node.crowded:
            await node.room()
        result = send_parts(node, key, [part])
        await node.role.safe(result.position, acks)
        return result, 0


class DirectReceives:
    """Receives."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def receive(self, key: TopicKey, call: ReceiveCall) -> Looked:
        """Lease ready messages. The lease is in the log file when this returns."""
        node = self._node
        # A receive turns the wheel.
        node.run_due()
        found = lease(node, key, [call])
        if not found:
            return node.waiters.join(waiting_key(key, call))
        if not node.write_through():
            await node.durable(found[0].position)
        return found[0]


class DirectSettles:
    """Acks, nacks and extensions."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def settle(
        self, key: TopicKey, wanted: Settling, receipts: Sequence[Receipts]
    ) -> list[Settlement]:
        """Settle messages of several leases; return an outcome for each once the log is durable."""
        node = self._node
        settled = outcomes(node, key, wanted, receipts)
        node.wake_ready()
        await node.durable(node.engine.state.position)
        return settled


class DirectTurn:
    """Replaces a server's `Turn`."""

    def __init__(self, node: Node) -> None:
        self.sends = DirectSends(node)
        self.receives = DirectReceives(node)
        self.settles = DirectSettles(node)
