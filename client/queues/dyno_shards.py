"""The shared state of a Dyno queue: shards, leases and statistics.

A shard is a topic of a client. Several shards are either topics `NAME.SHARD` of one client, or the
topic `NAME` of several clients. The own shard is the one of this zone; only calls whose name says
so use the others. The statistics have the original's names; recording and reading them never block
a call of the queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from delaylog.client._sync.message import Message
from delaylog.client._sync.surface import QueueClient
from delaylog.client.models import MessageInfo
from delaylog.client.queues.dyno_message import PRIORITY_MAX
from delaylog.client.queues.dyno_message import Message as DynoMessage
from delaylog.client.queues.queue_topics import NO_BACKOFF, open_topic
from delaylog.client.wire.checks import check_texts, check_topic

# ----------------------------------------------------------------------------------- statistics


@dataclass(frozen=True, slots=True)
class Figures:
    """Count, minimum, maximum and sum of recorded values."""

    count: int = 0
    min: float = 0.0
    max: float = 0.0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """The mean, or 0 without values."""
        return self.total / self.count if self.count else 0.0

    def with_value(self, value: float) -> Figures:
        """The figures with one more value."""
        if self.count == 0:
            return Figures(1, value, value, value)
        return Figures(
            self.count + 1, min(self.min, value), max(self.max, value), self.total + value
        )


TIMERS = ("peek", "ack", "size", "process_unack", "remove", "get")
"""Durations of calls, in milliseconds."""

STATISTICS = ("queue_depth", "batch_size", "pop", "push", "prefetch")
"""`queue_depth`: queued messages at each `process_unacks`; `batch_size`: messages requested by a
pop;
`pop`, `push`, `prefetch`: milliseconds of a call per message. A prefetch is one request of a pop
that returned messages."""


class DynoStats:
    """The timers, statistics and counter of one queue. Thread-safe."""

    def __init__(self, queue_name: str, shard: str) -> None:
        self.tags: Mapping[str, str] = {
            "class": "DynoQueue",
            "shard": shard,
            "queueName": queue_name,
        }
        self._figures = dict.fromkeys((*TIMERS, *STATISTICS), Figures())
        self._misses = 0
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Figures:
        """A timer or statistic by name. Raises KeyError."""
        return self._figures[name]

    @property
    def queue_miss(self) -> int:
        """Messages requested by id or predicate that another consumer took first."""
        return self._misses

    def as_dict(self) -> dict[str, Figures]:
        """All timers and statistics."""
        with self._lock:
            return dict(self._figures)

    def record(self, name: str, value: float) -> None:
        """Record a value of a timer or statistic."""
        with self._lock:
            self._figures[name] = self._figures[name].with_value(value)

    def missed(self) -> None:
        """Count a miss."""
        with self._lock:
            self._misses += 1

    @contextmanager
    def timed(self, name: str, batch: int = 1) -> Iterator[None]:
        """Record the duration of the block in ms, divided by `batch`, also if it raises."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.record(name, (time.perf_counter() - began) * 1000 / max(1, batch))


# ---------------------------------------------------------------------------- leases and shards

# The leases of this queue object, by message id.
#
# An id that this object has taken is settled with its own lease, even after the lease has ended.
# So a late consumer cannot settle a delivery of another consumer.

HELD_MAX = 65_536
"""How many of the newest leases are remembered; older ones are settled by id."""


class Held:
    """Maps message ids to shard names and deliveries. Thread-safe."""

    def __init__(self, held_max: int = HELD_MAX) -> None:
        self._by_id: dict[str, tuple[str, Message]] = {}
        self._held_max = held_max
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_id)

    def keep(self, shard: str, messages: Iterable[Message]) -> None:
        """Add deliveries."""
        with self._lock:
            for message in messages:
                message_id = message.id
                self._by_id.pop(message_id, None)
                self._by_id[message_id] = (shard, message)
            while len(self._by_id) > self._held_max:
                del self._by_id[next(iter(self._by_id))]

    def find(self, message_id: str) -> tuple[str, Message] | None:
        """The shard and the newest delivery of an id, or None."""
        return self._by_id.get(message_id)

    def drop(self, message_id: str, message: Message) -> None:
        """Remove a settled delivery, unless there is a newer one of the id."""
        with self._lock:
            found = self._by_id.get(message_id)
            if found is not None and found[1] is message:
                del self._by_id[message_id]

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._by_id.clear()


UNACK_MS: Final = 60_000
"""Default unack time of the original's builders (its class itself defaults to 60 ms)."""

RETRIES_MAX: Final = 65_534
"""The maximum of a broker; the original has no limit."""

TIMEOUT_HEADER: Final = "dyno-timeout-ms"
"""The header that stores the timeout of a push."""

TIMEOUT_DIGITS_MAX: Final = 18
"""Other programs may send anything; Python refuses to read thousands of digits."""

ONLY_SHARD: Final = "default"
"""The name of the only shard of a queue."""

ShardStrategy = Callable[[Sequence[str], DynoMessage], str]
"""Chooses the shard of a pushed message."""

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
    client: QueueClient
    topic: str


class RoundRobin:
    """One shard after the other. The counter is incremented first, so it starts with shard 1."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self, shards: Sequence[str], _message: DynoMessage) -> str:
        with self._lock:
            self._last = (self._last + 1) % len(shards)
            return shards[self._last]


class DynoShards:
    """The base class of the parts of a queue."""

    def __init__(
        self,
        client: QueueClient | Mapping[str, QueueClient],
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
        """The statistics of this object."""
        for shard in self._shards.values():
            open_topic(shard.client, shard.topic, _NEEDED, {"lease_ms": unack_ms})

    def _all(self) -> tuple[Shard, ...]:
        return tuple(self._shards.values())


def message_of(shard: Shard, found: Message | MessageInfo) -> DynoMessage:
    """Convert a message of the broker; its body is the payload."""
    timeout = found.headers.get(TIMEOUT_HEADER, "")
    return DynoMessage(
        found.id,
        (found.body or b"").decode(errors="surrogateescape"),
        int(timeout) if timeout.isdecimal() and len(timeout) <= TIMEOUT_DIGITS_MAX else 0,
        dyno_priority(found.priority),
        shard.name,
    )


def broker_priority(priority: int) -> int:
    """The broker's priority, where the highest comes first. 0, the most common one, stays 0."""
    return -priority


def dyno_priority(priority: int) -> int:
    """The inverse; priorities of other senders are clamped to 0..99."""
    return min(max(-priority, 0), PRIORITY_MAX)


def _shards_of(
    client: QueueClient | Mapping[str, QueueClient], name: str, shards: Sequence[str] | None
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
