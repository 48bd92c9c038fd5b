"""What the parts of a Dyno queue share: its shards, its leases in hand, its figures.

The one rule: a shard is a topic on a client. Several are topics `NAME.SHARD` of one client, or the
topic `NAME` on a client each. The own shard is the one of this zone; only what says so looks
further.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delaylog.client.message import Message
from delaylog.client.models import MessageInfo
from delaylog.client.queues.dyno.held import Held
from delaylog.client.queues.dyno.message import PRIORITY_MAX
from delaylog.client.queues.dyno.message import Message as DynoMessage
from delaylog.client.queues.dyno.stats import DynoStats
from delaylog.client.queues.opening import NO_BACKOFF, open_topic
from delaylog.client.queues.port import QueuePort
from delaylog.client.wire.checks import check_texts, check_topic

UNACK_MS: Final = 60_000
"""Default time to acknowledge, as the original's builders set it (its bare class says 60 ms)."""

RETRIES_MAX: Final = 65_534
"""The most that a broker counts; the original never gives a message up."""

TIMEOUT_HEADER: Final = "dyno-timeout-ms"
"""Keeps the timeout of a push, for who reads the message."""

ONLY_SHARD: Final = "default"
"""The name of the shard of a queue that has one."""

ShardStrategy = Callable[[Sequence[str], DynoMessage], str]
"""Chooses the shard of a message that is pushed."""

_NEEDED: Final = {
    "order": "time",
    "merge": "replace",
    "ttl_ms": -1,
    "max_retry": RETRIES_MAX,
    "backoff": NO_BACKOFF,
}


@dataclass(frozen=True, slots=True)
class Shard:
    """A topic on a client."""

    name: str
    client: QueuePort
    topic: str


class RoundRobin:
    """One shard after the other. The counter moves before it is used: the first is shard 1."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self, shards: Sequence[str], _message: DynoMessage) -> str:
        with self._lock:
            self._last = (self._last + 1) % len(shards)
            return shards[self._last]


class DynoShards:
    """What a queue is made of."""

    def __init__(
        self,
        client: QueuePort | Mapping[str, QueuePort],
        name: str,
        *,
        shards: Sequence[str] | None = None,
        own_shard: str | None = None,
        unack_ms: int = UNACK_MS,
        strategy: ShardStrategy | None = None,
    ) -> None:
        if unack_ms < 1:
            raise ValueError(f"an unack time is 1 ms or more, not {unack_ms}")
        check_topic(name)
        self.name = name
        self.unack_ms = unack_ms
        names = None if shards is None else check_texts("shards", shards)
        self._shards = _shards_of(client, name, names)
        self._shard_names = tuple(self._shards)
        own = self._shard_names[0] if own_shard is None else own_shard
        if own not in self._shards:
            raise ValueError(f"the own shard {own!r} is none of {list(self._shards)}")
        self._own = self._shards[own]
        self._own_first = (self._own, *(s for s in self._shards.values() if s is not self._own))
        self._strategy = strategy
        self._round_robin = RoundRobin()
        self._held = Held()
        self.stats = DynoStats(name, own)
        """What this object has measured."""
        for shard in self._shards.values():
            open_topic(shard.client, shard.topic, _NEEDED, {"lease_ms": unack_ms})

    def _all(self) -> tuple[Shard, ...]:
        return tuple(self._shards.values())

    def _handed_out(self, shard: Shard, received: Sequence[Message]) -> list[DynoMessage]:
        """What a receive brought, as messages of the queue; their leases are kept."""
        self._held.keep(shard.name, received)
        return [message_of(shard, each) for each in received]


def message_of(shard: Shard, found: Message | MessageInfo) -> DynoMessage:
    """A message of the queue from what the broker has; its body is the payload."""
    timeout = found.headers.get(TIMEOUT_HEADER, "")
    return DynoMessage(
        found.id,
        (found.body or b"").decode(errors="surrogateescape"),
        int(timeout) if timeout.isdecimal() else 0,
        dyno_priority(found.priority),
        shard.name,
    )


def broker_priority(priority: int) -> int:
    """The lowest goes first here, the highest at the broker; 0, what most have, stays 0."""
    return -priority


def dyno_priority(priority: int) -> int:
    """The other way round; what others sent with a priority beyond 0..99 counts as its end."""
    return min(max(-priority, 0), PRIORITY_MAX)


def _shards_of(
    client: QueuePort | Mapping[str, QueuePort], name: str, shards: Sequence[str] | None
) -> dict[str, Shard]:
    if isinstance(client, Mapping):
        if shards is not None and set(shards) != set(client):
            raise ValueError(f"clients are given for {list(client)}, shards are {list(shards)}")
        found = {shard: Shard(shard, client[shard], name) for shard in shards or client}
    elif shards is None:
        found = {ONLY_SHARD: Shard(ONLY_SHARD, client, name)}
    else:
        found = {shard: Shard(shard, client, f"{name}.{shard}") for shard in shards}
        if len(found) != len(shards):
            raise ValueError("a shard is named twice")
    if not found:
        raise ValueError("a queue has at least one shard")
    return found
