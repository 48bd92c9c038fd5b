"""The interface that queues require of a client: `surface`, and settling by id.

Queues use nothing else, so they run on `Client` and on an embedded broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from delaylog.client.models import Settled
from delaylog.client.shards.settling import Verb
from delaylog.client.surface import QueueClient


class QueuePort(QueueClient, Protocol):
    """One namespace of a broker, of several brokers as shards, or of an embedded broker."""

    def settle_ids(
        self, topic: str, verb: Verb, ids: Sequence[str], *, lease_ms: int | None = None
    ) -> list[Settled]:
        """`ack`, `nack` or `extend` by id, no matter which consumer holds the lease."""
