"""RMQ's topics on any endpoint that speaks Redis's protocol."""

from delaylog.client.queues.rmq.messages import (
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqMessage,
)
from delaylog.client.recipes.rmq.deliveries import DeadLetter, Delivery
from delaylog.client.recipes.rmq.topic import RmqTopic, RolledBack, TopicKind

__all__ = [
    "DeadLetter",
    "Delivery",
    "FixedTimeMessage",
    "PriorityMessage",
    "RangeMergeMessage",
    "RmqMessage",
    "RmqTopic",
    "RolledBack",
    "TopicKind",
]
