"""Chooses the sender of a message.

A message with an id or key goes to its home shard only. Other messages go round robin, skipping
unreachable shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from delaylog.client.sending.lane_set import LaneSender
from delaylog.client.shards.sharding import Topology

SenderT = TypeVar("SenderT", bound=LaneSender)


class Choosing(Generic[SenderT]):
    """Mixin of a client that chooses senders; the inheriting class creates them."""

    _topology: Topology
    _senders: Sequence[SenderT]

    def _sender_for(self, id: str | None, key: str | None) -> tuple[SenderT, bool]:
        """The sender, and whether the message may go to another shard."""
        home = self._topology.home(id, key)
        if home is not None:
            return self._senders[home], False
        order = self._topology.order()
        at = next((each for each in order if self._senders[each].reachable), order[0])
        return self._senders[at], True

    def _spare_sender(self, tried: set[str]) -> SenderT | None:
        for at in self._topology.order():
            if self._senders[at].shard not in tried:
                return self._senders[at]
        return None
