"""Dyno-queues, first version, on any endpoint that speaks Redis's protocol."""

from delaylog.client.queues.dyno.message import Message as DynoMessage
from delaylog.client.recipes.dyno.dyno_queue import DynoQueue
from delaylog.client.recipes.dyno.shards import RoundRobin, ShardStrategy

__all__ = ["DynoMessage", "DynoQueue", "RoundRobin", "ShardStrategy"]
