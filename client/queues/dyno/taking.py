"""How messages leave a queue for a consumer: pop, pop by id, peek.

The one rule: who has a message has it under a lease, and the broker gives a lease to one. So there
is no lock, no prefetched id that somebody else takes, and no call that is half done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import ceil

from delaylog.client.errors import NotFound, TooLate
from delaylog.client.message import Message as Delivery
from delaylog.client.models import Settled
from delaylog.client.queues.dyno.message import Message
from delaylog.client.queues.dyno.shards import DynoShards, Shard, message_of

ROUND_MS = 200
"""How long a pop of all shards waits at the own one before it looks at the others again."""

PAUSE_S = 0.01
"""Between two looks at a broker that answers a waiting call at once."""

RECEIVE_MAX = 1_000
"""Messages of one request."""

WAIT_MS_MAX = 20_000
"""How long one request waits at most."""

BRIEF_MS = 100
"""How long a message that was made due by its id is waited for."""


class DynoTaking(DynoShards):
    """Taking and looking at what is due."""

    def pop(self, count: int, wait_ms: int = 0) -> list[Message]:
        """Take up to `count` due messages of the own shard, waiting until so many are there or the
        time is over. All of them have the whole unack time from the end of the call, or
        near it; they are to be acknowledged within it, else they come back by themselves.
        """
        return self._pop([self._own], count, wait_ms)

    def bulk_pop(self, count: int, wait_ms: int = 0) -> list[Message]:
        """As `pop`. The original takes all ids by one script, and answers nothing if one of them is
        gone by then, while those before it stay taken; that cannot happen here.
        """
        return self._pop([self._own], count, wait_ms)

    def unsafe_pop_all_shards(self, count: int, wait_ms: int = 0) -> list[Message]:
        """As `pop`, from the own shard first and then the others. Nothing is unsafe about it here:
        a message is handed out to one, also where zones copy each other.
        """
        return self._pop(self._own_first, count, wait_ms)

    def unsafe_bulk_pop(self, count: int, wait_ms: int = 0) -> list[Message]:
        """As `unsafe_pop_all_shards`."""
        return self._pop(self._own_first, count, wait_ms)

    def pop_with_msg_id(self, message_id: str) -> Message | None:
        """Take this one from the own shard, whether it is due or not. None if it is not queued.

        One that is not due is made due first, so a pop of somebody else in the same moment may take
        it: then the answer is None, as whenever another one was faster. If nobody gets it (the
        topic is paused, or an older message of the id is in work) its time is put back.
        """
        return self._take_by_id(self._own, message_id)

    def unsafe_pop_with_msg_id_all_shards(self, message_id: str) -> Message | None:
        """As `pop_with_msg_id`, from the first shard that has it."""
        for shard in self._own_first:
            taken = self._take_by_id(shard, message_id)
            if taken is not None:
                return taken
        return None

    def atomic_pop_with_msg_id_all_shards(self, message_id: str) -> Message | None:
        """Take this one from the first shard that has it, only if it is due."""
        for shard in self._own_first:
            taken = self._take_due(shard, message_id)
            if taken is not None:
                return taken
        self.stats.missed()
        return None

    def peek(self, count: int) -> list[Message]:
        """Look at up to `count` due messages of the own shard, in their order; none is taken."""
        with self.stats.timed("peek"):
            return self._peek([self._own], count)

    def unsafe_peek_all_shards(self, count: int) -> list[Message]:
        """Look at up to `count` due messages, the own shard's first; shards are not merged."""
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
        """One that waits for its time: make it due, and take it."""
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
            # Somebody took it, or took it out; that is their answer, not ours.
            return None
        return taken


class _Popping:
    """One pop: rounds over the shards until it is full or its time is over."""

    def __init__(
        self, queue: DynoTaking, shards: Sequence[Shard], count: int, wait_ms: int
    ) -> None:
        self._queue = queue
        self._shards = shards
        self._count = count
        self._until = time.monotonic() + wait_ms / 1000
        self._taken: list[tuple[Shard, Delivery]] = []
        self._renewed_at = 0.0
        """Since when the oldest lease in hand runs."""

    def run(self) -> list[Message]:
        """The messages, in the order in which they came."""
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
        """Wait at the own shard for something, and see to it that what is in hand stays ours."""
        wait_s = min(left_s, (WAIT_MS_MAX if len(self._shards) == 1 else ROUND_MS) / 1000)
        if self._taken:
            half_s = self._unack_s / 2
            if time.monotonic() - self._renewed_at >= half_s:
                self._renew()
            wait_s = min(wait_s, self._renewed_at + half_s - time.monotonic())
        began = time.monotonic()
        if not self._receive(self._shards[0], max(0, ceil(wait_s * 1000))):
            # A broker whose clock is moved by hand does not wait as long as it was asked to.
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
        """What was waited with gets the whole unack time again; what was lost is left out."""
        self._renewed_at = time.monotonic()
        gone: set[Delivery] = set()
        for shard in self._shards:
            mine = [each for place, each in self._taken if place is shard]
            if mine:
                settled = shard.client.extend(mine, lease_ms=self._queue.unack_ms)
                gone |= {e for e, how in zip(mine, settled, strict=True) if how is Settled.GONE}
        self._taken = [(place, each) for place, each in self._taken if each not in gone]
