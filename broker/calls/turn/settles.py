"""Acks of one turn of the loop become one SETTLE frame for each group, others one for each caller.

What one caller names wrongly is gone for that caller alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from delaylog.broker.calls.turn.callers import Callers, refuse
from delaylog.broker.calls.turn.writes import Host, Settling, settle_each
from delaylog.broker.engine.deliver.settling import Receipts
from delaylog.broker.engine.model import Settlement, empty_refs
from delaylog.broker.host.waiters import TopicKey

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

Settled: TypeAlias = "asyncio.Future[list[Settlement]]"


def outcomes(
    host: Host, key: TopicKey, wanted: Settling, receipts: Sequence[Receipts]
) -> list[Settlement]:
    """Settle messages of several leases; all are gone where there is no such topic."""
    state = host.engine.state
    topic = state.topics.get(key)
    if topic is not None:
        return settle_each(host, topic, wanted, receipts)
    return [
        Settlement(0, empty_refs() if each.origins is None else each.origins, state.position)
        for each in receipts
    ]


class SettleMerger:
    """Collects what is settled in a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[
            tuple[TopicKey, Settling], list[tuple[Sequence[Receipts], Settled]]
        ] = {}

    async def settle(
        self, key: TopicKey, wanted: Settling, receipts: Sequence[Receipts]
    ) -> list[Settlement]:
        """Settle messages of several leases; an outcome for each, once the log is durable."""
        loop = asyncio.get_running_loop()
        future: Settled = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.setdefault((key, wanted), []).append((receipts, future))
        return await future

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        node = self._node
        for (key, wanted), items in waiting.items():
            futures = [future for _, future in items]
            try:
                node.standing.check()
                every = [each for receipts, _ in items for each in receipts]
                rest = iter(outcomes(node, key, wanted, every))
            except Exception as error:
                refuse(futures, error)
                continue
            parts = [[next(rest) for _ in receipts] for receipts, _ in items]
            node.when_durable(node.engine.state.position, Callers(futures, parts))
        # What came back to ready wakes a waiter.
        node.wake_ready()
        node.kick_dispatch()
