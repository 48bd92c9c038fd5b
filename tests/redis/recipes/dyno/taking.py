"""How messages leave a queue for a consumer: pop, bulk pop, pop by id, peek.

The one rule: no lock is ever taken. Whoever adds the id to an unack set (NX) and then removes it
from the queue has it; who loses either step leaves the rest to `process_unacks`.
"""

from __future__ import annotations

from collections.abc import Sequence

from delaylog.client.queues.dyno.message import Message
from tests.redis.recipes.dyno import scripts
from tests.redis.recipes.dyno.prefetch import Prefetch
from tests.redis.recipes.dyno.shards import DynoShards, Shard
from tests.redis.recipes.replies import texts

POLL_MS = 200
"""Pause between two looks of a pop that waits."""


class DynoTaking(DynoShards):
    """Taking and looking at what is due."""

    @property
    def prefetch_wanted(self) -> int:
        """How many ids of the own shard callers still wait for."""
        return self._prefetches[self._own.name].wanted

    def pop(self, count: int, wait_ms: int = 0) -> list[Message]:
        """Take up to `count` due messages of the own shard, waiting until they are there.

        They are to be acknowledged within the unack time, else they come back.
        """
        if count < 1:
            return []
        prefetch = self._prefetches[self._own.name]
        self._gather([(self._own, prefetch)], count, wait_ms)
        return self._take_held(self._own, prefetch, count)

    def unsafe_pop_all_shards(self, count: int, wait_ms: int = 0) -> list[Message]:
        """As `pop`, from the own shard and then the others: messages may repeat where the
        endpoints of zones copy each other late.
        """
        if count < 1:
            return []
        sources = [(shard, self._prefetches_all[shard.name]) for shard in self._own_first]
        self._gather(sources, count, wait_ms)
        taken: list[Message] = []
        for shard, prefetch in sources:
            taken += self._take_held(shard, prefetch, count - len(taken))
        return taken

    def bulk_pop(self, count: int, wait_ms: int = 0) -> list[Message]:
        """As `pop`, all ids by one script: if one was taken meanwhile, the answer is empty and the
        ids before it stay in unack until `process_unacks`.
        """
        if count < 1:
            return []
        prefetch = self._prefetches[self._own.name]
        self._gather([(self._own, prefetch)], count, wait_ms)
        ids = prefetch.let_go(count)
        if not ids:
            return []
        now_ms = self._clock()
        bodies = self._calls.script(
            scripts.BULK_POP,
            [self._bodies],
            *(len(ids), now_ms + 1, now_ms + self.unack_ms, self._own.queue, self._own.unack),
            *ids,
        )
        return self._delivered(bodies)

    def unsafe_bulk_pop(self, count: int, wait_ms: int = 0) -> list[Message]:
        """As `bulk_pop`, from all shards, own first."""
        if count < 1:
            return []
        sources = [(shard, self._prefetches_all[shard.name]) for shard in self._own_first]
        self._gather(sources, count, wait_ms)
        ids: dict[str, None] = {}
        for _, prefetch in sources:
            ids |= dict.fromkeys(prefetch.let_go(count - len(ids)))
        if not ids:
            return []
        now_ms = self._clock()
        bodies = self._calls.script(
            scripts.BULK_POP_ALL,
            [self._bodies],
            *(len(ids), len(self._shards), now_ms + 1, now_ms + self.unack_ms),
            *self._key_pairs(self._own_first),
            *ids,
        )
        return self._delivered(bodies)

    def pop_with_msg_id(self, message_id: str) -> Message | None:
        """Take this one from the own shard, whether it is due or not."""
        return self._pop_id(self._own, message_id)

    def unsafe_pop_with_msg_id_all_shards(self, message_id: str) -> Message | None:
        """Take this one from the first shard that has it, whether it is due or not."""
        for shard in self._all():
            taken = self._pop_id(shard, message_id)
            if taken is not None:
                return taken
        return None

    def atomic_pop_with_msg_id_all_shards(self, message_id: str) -> Message | None:
        """The same by one script, and only if it is due."""
        now_ms = self._clock()
        body = self._calls.script(
            scripts.POP_ID,
            [self._bodies],
            *(message_id, len(self._shards), now_ms + 1, now_ms + self.unack_ms),
            *self._key_pairs(self._all()),
        )
        return self._message(body)

    def peek(self, count: int) -> list[Message]:
        """Look at up to `count` due messages of the own shard, in their order; none is taken."""
        return self._peek(self._own, count)

    def unsafe_peek_all_shards(self, count: int) -> list[Message]:
        """Look at up to `count` due messages, the own shard's first; shards are not merged."""
        seen: list[Message] = []
        for shard in self._own_first:
            seen += self._peek(shard, count - len(seen))
        return seen

    # Reading ahead.

    def _gather(self, sources: Sequence[tuple[Shard, Prefetch]], count: int, wait_ms: int) -> None:
        """Read ids ahead until `count` are held or the wait is over; at least once.

        A look that found nothing clears what is wanted, as the recipe says; the next look of the
        same wait wants again what this caller lacks, or it would not see what arrives meanwhile.
        """
        start_ms = self._clock()
        for _, prefetch in sources:
            prefetch.want(count)
        while True:
            held = 0
            for shard, prefetch in sources:
                if held < count:
                    self._read_ahead(shard, prefetch)
                    held += prefetch.held()
                else:
                    prefetch.forgo(count)
            if held >= count or self._clock() - start_ms >= wait_ms:
                return
            self._sleep(POLL_MS)
            for _, prefetch in sources:
                prefetch.want_again(count)

    def _read_ahead(self, shard: Shard, prefetch: Prefetch) -> None:
        limit = prefetch.read_limit()
        if limit > 0:
            prefetch.came(self._due_ids(shard, limit))

    def _due_ids(self, shard: Shard, count: int) -> list[str]:
        now_ms = self._clock()
        return texts(
            self._calls.one("ZRANGEBYSCORE", shard.queue, 0, now_ms + 1, "LIMIT", 0, count)
        )

    # Taking.

    def _take_held(self, shard: Shard, prefetch: Prefetch, count: int) -> list[Message]:
        """Take held ids until `count` messages are there or no id is left."""
        taken: list[Message] = []
        while len(taken) < count:
            ids = prefetch.let_go(count - len(taken))
            if not ids:
                break
            taken += self._take(shard, ids)
        return taken

    def _take(self, shard: Shard, ids: Sequence[str]) -> list[Message]:
        """Each id by itself: into unack, out of the queue, its body. One trip a step for all."""
        deadline_ms = self._clock() + self.unack_ms
        added = self._calls.many(
            [("ZADD", shard.unack, "NX", deadline_ms, message_id) for message_id in ids],
        )
        ours = [message_id for message_id, was in zip(ids, added, strict=True) if int(was) == 1]
        removed = self._calls.many([("ZREM", shard.queue, message_id) for message_id in ours])
        ours = [message_id for message_id, was in zip(ours, removed, strict=True) if int(was) == 1]
        return self._read(ours)

    def _pop_id(self, shard: Shard, message_id: str) -> Message | None:
        if self._calls.one("ZRANK", shard.queue, message_id) is None:
            return None
        message = self._message(self._calls.one("HGET", self._bodies, message_id))
        if message is None:
            return None
        deadline_ms = self._clock() + self.unack_ms
        added = self._calls.one("ZADD", shard.unack, "NX", deadline_ms, message_id)
        if int(added) != 1 or int(self._calls.one("ZREM", shard.queue, message_id)) != 1:
            return None
        return message

    def _peek(self, shard: Shard, count: int) -> list[Message]:
        if count < 1:
            return []
        return self._read(self._due_ids(shard, count))

    def _delivered(self, bodies: Sequence[bytes | str | None]) -> list[Message]:
        return [found for body in bodies if (found := self._message(body)) is not None]
