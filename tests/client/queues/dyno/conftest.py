"""Dyno queues on the embedded broker; a second queue object stands for another consumer."""

from __future__ import annotations

import pytest

from delaylog.broker.embedded import EmbeddedBroker, ManualClock
from delaylog.client.queues import DynoQueue


@pytest.fixture
def queue(client: EmbeddedBroker[ManualClock]) -> DynoQueue:
    """One shard."""
    return DynoQueue(client, "q")


@pytest.fixture
def sharded(client: EmbeddedBroker[ManualClock]) -> DynoQueue:
    """Three shards, of which `a` is the own one."""
    return DynoQueue(client, "q", shards=["a", "b", "c"], own_shard="a")
