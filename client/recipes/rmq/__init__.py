"""RMQ's topics on any endpoint that speaks Redis's protocol."""

from delaylog.client.recipes.rmq.messages import (
    DeadLetter,
    Delivery,
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqMessage,
)
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
