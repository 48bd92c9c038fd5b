"""RMQ's three kinds of message on the native API."""

from delaylog.client.queues.rmq.consumer import RmqConsumer
from delaylog.client.queues.rmq.delivery import RmqDeadLetter, RmqDelivery, RolledBack
from delaylog.client.queues.rmq.messages import (
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqMessage,
)
from delaylog.client.queues.rmq.producer import RmqProducer
from delaylog.client.queues.rmq.topic import TopicKind, open_rmq_topic

__all__ = [
    "FixedTimeMessage",
    "PriorityMessage",
    "RangeMergeMessage",
    "RmqConsumer",
    "RmqDeadLetter",
    "RmqDelivery",
    "RmqMessage",
    "RmqProducer",
    "RolledBack",
    "TopicKind",
    "open_rmq_topic",
]
