"""Taking messages from a queue: pop, pop by id, peek.

A taken message is leased, and the broker grants a lease to one consumer only. So there are no
locks, no prefetched ids that another consumer may take, and no partially executed calls.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import ceil

from delaylog.client._sync.message import Message as Delivery
from delaylog.client.errors import NotFound, TooLate
from delaylog.client.models import Settled
from delaylog.client.queues.dyno.message import Message
from delaylog.client.queues.dyno.shards import DynoShards, Shard, message_of

ROUND_MS = 200
"""How long a pop of all shards waits on the own shard before it checks the others again."""

PAUSE_S = 0.01
"""Pause between calls to a broker that does not wait, because its clock is moved by hand."""

RECEIVE_MAX = 1_000
"""The most messages per request."""

WAIT_MS_MAX = 20_000
"""The longest wait of one request."""

BRIEF_MS = 100
"""How long to wait for a message that was made due by id."""


class DynoTaking(DynoShards):
    """The calls that take or peek at due messages."""

    def pop(self, count: int, wait_ms: int = 0) -> list[Message]:
        """Take up to `count` due messages of the own shard, waiting until `wait_ms` is over.

        At the end of the call nearly the whole unack time is left for each of them. A message that
        is not acknowledged within it is delivered again.
        """
        return self._pop([self._own], count, wait_ms)

    def bulk_pop(self, count: int, wait_ms: int = 0) -> list[Message]:
        """Like `pop`.

        The original takes all ids with one script. If one of them is gone, it returns nothing, but
        the ids before it stay taken. This cannot happen here.
        """
        return self._pop([self._own], count, wait_ms)

    def unsafe_pop_all_shards(self, count: int, wait_ms: int = 0) -> list[Message]:
        """Like `pop`, from the own shard first and then from the others.

        It is not unsafe here: a message is delivered to one consumer only, also across zones.
        """
        return self._pop(self._own_first, count, wait_ms)

    def unsafe_bulk_pop(self, count: int, wait_ms: int = 0) -> list[Message]:
        """Like `unsafe_pop_all_shards`."""
        return self._pop(self._own_first, count, wait_ms)

    def pop_with_msg_id(self, message_id: str) -> Message | None:
        """Take a message from the own shard, due or not. None if it is not queued.

        A message that is not due is made due first, so a concurrent pop may take it: then the
        result is None, as always when another consumer was faster. If no consumer can get it (the
        topic is paused, or an older message of the id is taken), its due time is restored.
        """
        return self._take_by_id(self._own, message_id)

    def unsafe_pop_with_msg_id_all_shards(self, message_id: str) -> Message | None:
        """Like `pop_with_msg_id`, from the first shard that has the message."""
        for shard in self._own_first:
            taken = self._take_by_id(shard, message_id)
            if taken is not None:
                return taken
        return None

    def atomic_pop_with_msg_id_all_shards(self, message_id: str) -> Message | None:
        """Take a message from the first shard that has it, only if it is due."""
        for shard in self._own_first:
            taken = self._take_due(shard, message_id)
            if taken is not None:
                return taken
        self.stats.missed()
        return None

    def peek(self, count: int) -> list[Message]:
        """Return up to `count` due messages of the own shard, in order, without taking them."""
        with self.stats.timed("peek"):
            return self._peek([self._own], count)

    def unsafe_peek_all_shards(self, count: int) -> list[Message]:
        """Return up to `count` due messages, shard by shard, the own shard first."""
        with self.stats.timed("peek"):
            return self._peek(self._own_first, count)

    def _pop(self, shards: Sequence[Shard], count: int, wait_ms: int) -> list[Message]:
        if count < 1:
            return []
        self.stats.record("batch_size", count)
        began = time.perf_counter()
        popped = _Popping(self, shards, count, wait_ms).run()
        self.stats.record("pop", (time.perf_counter() - began) * 1000 / max(1, len(popped)))
        return popped

    def _peek(self, shards: Sequence[Shard], count: int) -> list[Message]:
        seen: list[Message] = []
        for shard in shards:
            if len(seen) < count:
                found = shard.client.peek(shard.topic, max=min(count - len(seen), RECEIVE_MAX))
                seen += [message_of(shard, info) for info in found]
        return seen

    def _take_due(self, shard: Shard, message_id: str, wait_ms: int = 0) -> Message | None:
        received = shard.client.receive(
            shard.topic, max=1, wait_ms=wait_ms, lease_ms=self.unack_ms, ids=[message_id]
        )
        return self._handed_out(shard, received)[0] if received else None

    def _take_by_id(self, shard: Shard, message_id: str) -> Message | None:
        taken = self._take_due(shard, message_id) or self._take_early(shard, message_id)
        if taken is None:
            self.stats.missed()
        return taken

    def _take_early(self, shard: Shard, message_id: str) -> Message | None:
        """Make a waiting message due, and take it."""
        client, topic = shard.client, shard.topic
        try:
            found = client.get(topic, message_id)
            if found.state != "waiting":
                return None
            client.reschedule(topic, message_id, delay_ms=0)
        except (NotFound, TooLate):
            return None
        taken = self._take_due(shard, message_id)
        try:
            if taken is None and client.get(topic, message_id).state == "ready":
                taken = self._take_due(shard, message_id, BRIEF_MS)
                if taken is None:
                    client.reschedule(topic, message_id, deliver_at_ms=found.deliver_at_ms)
        except (NotFound, TooLate):
            # Another consumer took or removed it.
            return None
        return taken


class _Popping:
    """One pop: rounds over the shards until it is full or times out."""

    def __init__(
        self, queue: DynoTaking, shards: Sequence[Shard], count: int, wait_ms: int
    ) -> None:
        self._queue = queue
        self._shards = shards
        self._count = count
        self._until = time.monotonic() + wait_ms / 1000
        self._taken: list[tuple[Shard, Delivery]] = []
        self._renewed_at = 0.0
        """When the oldest lease of this pop started or was extended."""

    def run(self) -> list[Message]:
        """The messages, in order of arrival."""
        while True:
            for shard in self._shards:
                while not self._full and self._receive(shard, 0):
                    pass
            left_s = self._until - time.monotonic()
            if self._full or left_s <= 0:
                break
            self._wait(left_s)
        if time.monotonic() - self._renewed_at > self._unack_s / 10:
            self._renew()
        return [message_of(shard, each) for shard, each in self._taken]

    @property
    def _full(self) -> bool:
        return len(self._taken) >= self._count

    @property
    def _unack_s(self) -> float:
        return self._queue.unack_ms / 1000

    def _wait(self, left_s: float) -> None:
        """Wait for messages of the own shard, and keep the leases of those already taken."""
        wait_s = min(left_s, (WAIT_MS_MAX if len(self._shards) == 1 else ROUND_MS) / 1000)
        if self._taken:
            half_s = self._unack_s / 2
            if time.monotonic() - self._renewed_at >= half_s:
                self._renew()
            wait_s = min(wait_s, self._renewed_at + half_s - time.monotonic())
        began = time.monotonic()
        if not self._receive(self._shards[0], max(0, ceil(wait_s * 1000))):
            # A broker whose clock is moved by hand returns early.
            time.sleep(max(0.0, min(PAUSE_S, began + wait_s - time.monotonic())))

    def _receive(self, shard: Shard, wait_ms: int) -> int:
        queue = self._queue
        began = time.perf_counter()
        received = shard.client.receive(
            shard.topic,
            max=min(self._count - len(self._taken), RECEIVE_MAX),
            wait_ms=wait_ms,
            lease_ms=queue.unack_ms,
        )
        if received:
            elapsed_ms = (time.perf_counter() - began) * 1000
            queue.stats.record("prefetch", elapsed_ms / len(received))
            if not self._taken:
                self._renewed_at = time.monotonic()
            queue._held.keep(shard.name, received)
            self._taken += [(shard, each) for each in received]
        return len(received)

    def _renew(self) -> None:
        """Extend the leases to the whole unack time, and drop messages whose lease was lost."""
        self._renewed_at = time.monotonic()
        gone: set[Delivery] = set()
        for shard in self._shards:
            mine = [each for place, each in self._taken if place is shard]
            if mine:
                settled = shard.client.extend(mine, lease_ms=self._queue.unack_ms)
                gone |= {e for e, how in zip(mine, settled, strict=True) if how is Settled.GONE}
        self._taken = [(place, each) for place, each in self._taken if each not in gone]
