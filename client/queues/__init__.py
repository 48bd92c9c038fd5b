"""RMQ's and Dyno's queues on the native API: durable, sharded, without a scan or a timer of their
own.

The one rule: a recipe is settings of a topic and a choice of calls. It keeps no state that a crash
could lose, and runs on `Client` as on an embedded broker.
"""

from delaylog.client.queues.dyno import (
    DynoMessage,
    DynoQueue,
    DynoStats,
    Figures,
    Predicate,
    RoundRobin,
    ShardStrategy,
    by_id,
)
from delaylog.client.queues.opening import TopicMismatch
from delaylog.client.queues.port import QueuePort
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
