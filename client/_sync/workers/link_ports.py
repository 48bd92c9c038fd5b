"""Ports on the links of the clients: a shard by HTTP.

The one rule: a failure is the worker's to judge; only what the transport does about leaders of
clusters comes before.

Made from client/_async/workers/link_ports.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from delaylog.client._sync.link import Link
from delaylog.client.models import Settled
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.port_calls import Part, merged, settle_parts

if TYPE_CHECKING:
    from delaylog.client.message import Message


class LinkPort:
    """One shard of a Client."""

    def __init__(self, link: Link, consumer: Consumer) -> None:
        self.name = link.name
        self._link = link
        self._wanted = consumer.wanted
        self._lease_ms = consumer.lease_ms

    def receive(self, *, max: int, wait_ms: int) -> Sequence[Message]:
        """Lease up to `max` ready messages."""
        return self._link.receive(self._wanted, max=max, wait_ms=wait_ms, lease_ms=self._lease_ms)

    def ack(self, messages: Sequence[Message]) -> Sequence[Settled]:
        """End them, with a result each."""
        return self._settle("ack", messages)

    def nack(self, messages: Sequence[Message], *, delay_ms: int | None) -> Sequence[Settled]:
        """Have them come again after a while."""
        return self._settle("nack", messages, delay_ms=delay_ms)

    def extend(self, messages: Sequence[Message], *, lease_ms: int) -> Sequence[Settled]:
        """Hold them so long from now."""
        return self._settle("extend", messages, lease_ms=lease_ms)

    def _settle(
        self,
        verb: str,
        messages: Sequence[Message],
        *,
        delay_ms: int | None = None,
        lease_ms: int | None = None,
    ) -> list[Settled]:
        parts = settle_parts(
            self._link.places, verb, messages, delay_ms=delay_ms, lease_ms=lease_ms
        )
        answered: list[tuple[Part, Sequence[Settled]]] = []
        for part in parts:
            doubts: list[Exception] = []
            answer = self._link.carry(part.call, doubts=doubts)
            answered.append((part, part.results(answer, doubtful=bool(doubts))))
        return merged(len(messages), answered)
