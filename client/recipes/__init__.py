"""Delay queues as the documents describe them, on any endpoint that speaks Redis's protocol.

The one rule: keys, members and scripts are the recipes', so what is stored can be shared with other
programs that follow them. Each recipe takes a `Connection`; `RedisPyConnection` makes one of a
redis-py client (`delaylog[recipes]`).
"""

from delaylog.client.recipes.calls import RecipeFailed
from delaylog.client.recipes.camellia import (
    CamelliaQueue,
    CamelliaRunner,
    CamelliaScheduler,
    CamelliaSettings,
    DelayMessage,
    Round,
    Status,
    TopicInfo,
)
from delaylog.client.recipes.connection import (
    Argument,
    Command,
    CommandRefused,
    Connection,
    EndpointError,
    EndpointUnreachable,
    RedisPyConnection,
)
from delaylog.client.recipes.dyno import DynoMessage, DynoQueue, RoundRobin, ShardStrategy
from delaylog.client.recipes.rmq import (
    DeadLetter,
    Delivery,
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqMessage,
    RmqTopic,
    RolledBack,
    TopicKind,
)

__all__ = [
    "Argument",
    "CamelliaQueue",
    "CamelliaRunner",
    "CamelliaScheduler",
    "CamelliaSettings",
    "Command",
    "CommandRefused",
    "Connection",
    "DeadLetter",
    "DelayMessage",
    "Delivery",
    "DynoMessage",
    "DynoQueue",
    "EndpointError",
    "EndpointUnreachable",
    "FixedTimeMessage",
    "PriorityMessage",
    "RangeMergeMessage",
    "RecipeFailed",
    "RedisPyConnection",
    "RmqMessage",
    "RmqTopic",
    "RolledBack",
    "Round",
    "RoundRobin",
    "ShardStrategy",
    "Status",
    "TopicInfo",
    "TopicKind",
]
