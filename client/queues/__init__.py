"""RMQ's and Dyno's queues on the native API: durable and sharded, without scans or timers.

A queue consists of topic settings and a choice of calls. It has no state that a crash could lose,
and runs on `Client` and on an embedded broker.
"""

from delaylog.client._sync.surface import QueueClient as QueuePort
from delaylog.client.queues.dyno import DynoQueue, Predicate, by_id
from delaylog.client.queues.dyno_message import Message as DynoMessage
from delaylog.client.queues.dyno_shards import DynoStats, Figures, RoundRobin, ShardStrategy
from delaylog.client.queues.queue_topics import TopicMismatch
from delaylog.client.queues.rmq import (
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqConsumer,
    RmqDeadLetter,
    RmqDelivery,
    RmqMessage,
    RmqProducer,
    RolledBack,
    TopicKind,
    open_rmq_topic,
)

__all__ = [
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
