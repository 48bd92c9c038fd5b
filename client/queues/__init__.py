"""RMQ's and Dyno's queues on the native API: durable and sharded, without scans or timers.

A queue consists of topic settings and a choice of calls. It has no state that a crash could lose,
and runs on `Client` and on an embedded broker.
"""

from delaylog.client.queues.dyno.dyno_queue import DynoQueue
from delaylog.client.queues.dyno.looking import Predicate
from delaylog.client.queues.dyno.message import Message as DynoMessage
from delaylog.client.queues.dyno.settling import by_id
from delaylog.client.queues.dyno.shards import RoundRobin, ShardStrategy
from delaylog.client.queues.dyno.stats import DynoStats, Figures
from delaylog.client.queues.opening import TopicMismatch
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
from delaylog.client.surface import QueueClient as QueuePort

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
