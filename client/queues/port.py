"""What the recipes need of a client: what `surface` says, and settling by bare ids.

The one rule: a recipe sees nothing else, so it runs on `Client` against brokers and on an embedded
broker alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from delaylog.client.models import Settled
from delaylog.client.shards.settling import Verb
from delaylog.client.surface import QueueClient


class QueuePort(QueueClient, Protocol):
    """One namespace of one broker, of several as shards, or of an embedded one."""

    def settle_ids(
        self, topic: str, verb: Verb, ids: Sequence[str], *, lease_ms: int | None = None
    ) -> list[Settled]:
        """`ack`, `nack` or `extend` by bare ids, whoever has the messages."""
