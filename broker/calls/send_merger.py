"""Single sends of one turn of the loop become one batch, one frame and one fsync.

Each message was checked by itself before it came here, so one caller's mistake never touches
another's message. What is refused all the same (a quota is used up) is refused message by message.
"""

from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from delaylog.broker.calls.callers import Callers, refuse
from delaylog.broker.calls.sending_apart import send_apart
from delaylog.broker.calls.single_sends import Single, frames
from delaylog.broker.calls.writes import send_singles
from delaylog.broker.engine.model import SendResult
from delaylog.broker.waiters import TopicKey
from delaylog.replication.leader import Acks

if TYPE_CHECKING:
    from delaylog.broker.node import Node

Answer: TypeAlias = tuple[SendResult, int]
"""The batch's result and this message's row in it."""
Items: TypeAlias = "list[tuple[Single, asyncio.Future[Answer]]]"


class SingleMerger:
    """Collects the singles of a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[tuple[TopicKey, str | None, Acks | None], Items] = {}

    async def send(self, key: TopicKey, single: Single, acks: Acks | None = None) -> Answer:
        """Send one message; returns when it is as safe as `acks` says (None = as configured)."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._node.turns.single()
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.setdefault((key, single.merge, acks), []).append((single, future))
        return await future

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (key, merge, acks), items in waiting.items():
            for part in frames(items, self._node.engine.limits, itemgetter(0)):
                self._send_part(part, key, merge, acks)

    def _send_part(self, items: Items, key: TopicKey, merge: str | None, acks: Acks | None) -> None:
        def send_some(part: Items) -> SendResult:
            return self._send([single for single, _ in part], key, merge)

        for part, result in send_apart(items, send_some):
            futures = [future for _, future in part]
            if isinstance(result, Exception):
                refuse(futures, result)
            else:
                told = Callers(futures, [(result, row) for row in range(len(part))])
                self._node.standing.when_safe(result.position, acks, told)

    def _send(self, singles: list[Single], key: TopicKey, merge: str | None) -> SendResult:
        node = self._node
        node.standing.check()
        result = send_singles(node, key, singles, merge)
        node.appended()
        return result
