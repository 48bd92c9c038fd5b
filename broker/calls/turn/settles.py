"""Merges the settles of one turn of the loop.

All acks of a group become one SETTLE frame; a nack or extend gets a frame for each lease. A wrong
receipt of one caller is reported as gone to that caller alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from delaylog.broker.calls.turn.askers import Asker, Awaited, SharedResult, refuse
from delaylog.broker.calls.turn.writes import Host, Settling, settle_each
from delaylog.broker.engine.deliver.settling import Receipts
from delaylog.broker.engine.model import Settlement
from delaylog.broker.host.waiters import TopicKey

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

SettleAsker: TypeAlias = Asker[list[Settlement]]


def outcomes(
    host: Host, key: TopicKey, wanted: Settling, receipts: Sequence[Receipts]
) -> list[Settlement]:
    """Settle messages of several leases; all are gone if the topic does not exist."""
    state = host.engine.state
    topic = state.topics.get(key)
    if topic is not None:
        return settle_each(host, topic, wanted, receipts)
    return [Settlement(0, each.named, state.position) for each in receipts]


class SettleMerger:
    """Collects the settles of a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[
            tuple[TopicKey, Settling], list[tuple[Sequence[Receipts], SettleAsker]]
        ] = {}

    async def settle(
        self, key: TopicKey, wanted: Settling, receipts: Sequence[Receipts]
    ) -> list[Settlement]:
        """Settle messages of several leases; an outcome for each, once the log is durable.

        The answer to a `begin` waits until its frame is written, but not for the fsync.
        """
        asker: Awaited[list[Settlement]] = Awaited()
        self.add(key, wanted, receipts, asker)
        return await asker.future

    def add(
        self, key: TopicKey, wanted: Settling, receipts: Sequence[Receipts], asker: SettleAsker
    ) -> None:
        """As `settle`; the asker is told the outcomes."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.setdefault((key, wanted), []).append((receipts, asker))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        node, returns = self._node, False
        for (key, wanted), items in waiting.items():
            returns = returns or wanted.verb != "ack"
            every: list[Receipts] = []
            askers = []
            for receipts, asker in items:
                every += receipts
                askers.append(asker)
            try:
                node.role.check()
                settled = outcomes(node, key, wanted, every)
            except Exception as error:
                refuse(askers, error)
                continue
            parts, first = [], 0
            for receipts, _ in items:
                parts.append(settled[first : first + len(receipts)])
                first += len(receipts)
            tell = SharedResult(askers, parts)
            # As of a receive: losing a count in a power cut costs one attempt more.
            if wanted.verb == "begin" and node.write_through():
                node.role.appended(at_once=True)
                tell(None)
            else:
                node.when_durable(node.engine.state.position, tell)
        # Returned messages may be ready again, and acked ones leave room for leases: wake waiters.
        node.wake_ready()
        if returns:
            node.kick_dispatch()
