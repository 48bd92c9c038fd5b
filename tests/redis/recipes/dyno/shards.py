"""The names and the means that all parts of a Dyno queue share.

The one rule: one hash of bodies serves all shards; each shard has a queue, id -> due score, and an
unack set, id -> deadline. The own shard is the one of this zone; only what says so looks further.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from delaylog.client.queues.dyno.message import Message
from tests.redis.recipes.calls import Calls
from tests.redis.recipes.clock import Clock, Sleep, sleep_ms, wall_clock_ms
from tests.redis.recipes.connection import Connection, Reply
from tests.redis.recipes.dyno.prefetch import Prefetch
from tests.redis.recipes.replies import text_or_none

logger = logging.getLogger(__name__)

UNACK_MS = 60_000
"""Default time to acknowledge, as the original's builders set it (its bare class says 60 ms)."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The two sorted sets of one shard."""

    name: str
    queue: str
    unack: str


class DynoShards:
    """What a queue is made of: its keys, its connection, its clock."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        shards: Sequence[str],
        own_shard: str,
        prefix: str = "dynoQueue",
        unack_ms: int = UNACK_MS,
        clock: Clock = wall_clock_ms,
        sleep: Sleep = sleep_ms,
    ) -> None:
        if len(set(shards)) != len(shards):
            raise ValueError("a shard is named twice")
        if own_shard not in shards:
            raise ValueError(f"the own shard {own_shard!r} is none of {list(shards)}")
        self.name = name
        self.unack_ms = unack_ms
        self._calls = Calls(connection)
        self._shard_names = tuple(shards)
        self._shards = {
            shard: Shard(shard, f"{prefix}.QUEUE.{name}.{shard}", f"{prefix}.UNACK.{name}.{shard}")
            for shard in shards
        }
        self._own = self._shards[own_shard]
        self._own_first = (self._own, *(s for s in self._shards.values() if s is not self._own))
        self._bodies = f"{prefix}.MESSAGE.{name}"
        self._last_pushed = 0
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._prefetches = {shard: Prefetch() for shard in shards}
        self._prefetches_all = {shard: Prefetch() for shard in shards}
        """Of the calls that look at all shards; they do not feed on what `pop` read."""

    def _all(self) -> tuple[Shard, ...]:
        return tuple(self._shards.values())

    def _next_shard(self) -> Shard:
        """Round robin. The counter moves before it is used: the first is shard 1."""
        with self._lock:
            self._last_pushed = (self._last_pushed + 1) % len(self._shard_names)
            return self._shards[self._shard_names[self._last_pushed]]

    def _key_pairs(self, shards: Sequence[Shard]) -> list[str]:
        """What scripts take: queue and unack of each shard."""
        return [key for shard in shards for key in (shard.queue, shard.unack)]

    def _message(self, body: Reply) -> Message | None:
        """The message of a body; one that cannot be read is passed over as if it were gone."""
        stored = text_or_none(body)
        if stored is None:
            return None
        try:
            return decode(stored)
        except ValueError:
            logger.warning("%s holds a body that is no message: %.200r", self._bodies, stored)
            return None

    def _read(self, ids: Sequence[str]) -> list[Message]:
        """The messages of these ids that have a body, in this order."""
        bodies = self._calls.many([("HGET", self._bodies, message_id) for message_id in ids])
        return [found for body in bodies if (found := self._message(body)) is not None]


def decode(body: str) -> Message:
    """A stored body. Raise `ValueError` for what is no message."""
    members = json.loads(body)
    if not isinstance(members, dict):
        raise ValueError("the body of a message is a JSON object")
    shard = members.get("shard")
    return Message(
        id=str(members.get("id") or ""),
        payload=str(members.get("payload") or ""),
        timeout_ms=int(members.get("timeout") or 0),
        priority=int(members.get("priority") or 0),
        shard=None if shard is None else str(shard),
    )
