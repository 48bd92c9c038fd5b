"""The names that `delaylog.client.queues` offers; another one is a decision."""

from __future__ import annotations

from delaylog.client import queues

NAMES = [
    "DynoMessage",
    "DynoQueue",
    "DynoStats",
    "Figures",
    "FixedTimeMessage",
    "Predicate",
    "PriorityMessage",
    "QueuePort",
    "RangeMergeMessage",
    "RmqConsumer",
    "RmqDeadLetter",
    "RmqDelivery",
    "RmqMessage",
    "RmqProducer",
    "RolledBack",
    "RoundRobin",
    "ShardStrategy",
    "TopicKind",
    "TopicMismatch",
    "by_id",
    "open_rmq_topic",
]


def test_the_names() -> None:
    assert queues.__all__ == NAMES
    assert all(hasattr(queues, name) for name in NAMES)
