"""The names that packages offer: each is there, in order, and another one is a decision."""

from __future__ import annotations

import importlib

import pytest

PEERS = "Levels PeerConfig PeerCounts PeerHost PeerLimits PeerTls PeerTraffic PeerTransport Refused"
QUEUES = """
DynoMessage DynoQueue DynoStats Figures FixedTimeMessage Predicate PriorityMessage QueuePort
RangeMergeMessage RmqConsumer RmqDeadLetter RmqDelivery RmqMessage RmqProducer RolledBack RoundRobin
ShardStrategy TopicKind TopicMismatch by_id open_rmq_topic
"""
PACKAGES = {
    "delaylog.broker.cluster.peers": [*PEERS.split(), "Transport"],
    "delaylog.client": 48,
    "delaylog.client.queues": QUEUES.split(),
    "delaylog.replication": 23,
    "delaylog.replication.raftos_oracle": 6,
}
"""The names, or how many there are; those of the SDK are held by its reference (tests/docs)."""


@pytest.mark.parametrize(("package", "names"), PACKAGES.items())
def test_the_names_of_a_package(package: str, names: list[str] | int) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert names in (module.__all__, len(module.__all__))
