"""Dyno-queues on the native API."""

from delaylog.client.queues.dyno.dyno_queue import DynoQueue
from delaylog.client.queues.dyno.looking import Predicate
from delaylog.client.queues.dyno.message import Message as DynoMessage
from delaylog.client.queues.dyno.settling import by_id
from delaylog.client.queues.dyno.shards import RoundRobin, ShardStrategy
from delaylog.client.queues.dyno.stats import DynoStats, Figures

__all__ = [
    "DynoMessage",
    "DynoQueue",
    "DynoStats",
    "Figures",
    "Predicate",
    "RoundRobin",
    "ShardStrategy",
    "by_id",
]
