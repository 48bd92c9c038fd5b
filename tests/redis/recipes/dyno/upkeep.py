"""What keeps a queue healthy: unacknowledged messages come back, remains are found.

The one rule: a message comes back with its old deadline as its score. That is past, so it is due
at once, and those taken together come back in the order of their deadlines.
"""

from __future__ import annotations

from delaylog.client.queues.dyno.message import Message
from tests.redis.recipes.dyno import scripts
from tests.redis.recipes.dyno.shards import DynoShards
from tests.redis.recipes.replies import scored, texts

UNACK_BATCH = 1000
STALE_BATCH = 10


class DynoUpkeep(DynoShards):
    """Chores; a timer or an operator calls them."""

    def process_unacks(self) -> int:
        """Queue again what was taken from the own shard and not acknowledged in time; up to 1,000
        a call. Answer how many came back.
        """
        moved = 0
        for message_id, deadline in self._overdue():
            if self._calls.one("HGET", self._bodies, message_id) is not None:
                self._calls.one("ZADD", self._own.queue, deadline, message_id)
                moved += 1
            # Without a body it was acknowledged or removed: only its place is left.
            self._calls.one("ZREM", self._own.unack, message_id)
        return moved

    def atomic_process_unacks(self) -> int:
        """The same by one script; scores are rounded to whole milliseconds, half to even."""
        overdue = self._overdue()
        if not overdue:
            return 0
        entries: list[str | int] = [
            word for member, deadline in overdue for word in (member, round(deadline))
        ]
        moved, _ = self._calls.script(
            scripts.PROCESS_UNACKS,
            [self._bodies],
            *(self._own.unack, self._own.queue, len(overdue)),
            *entries,
        )
        return int(moved)

    def find_stale_messages(self) -> list[Message]:
        """Of the first ten due ids of each shard those that have no body and are not in unack;
        the messages have nothing but their ids.
        """
        stale: list[Message] = []
        for shard in self._all():
            due_max = self._clock() + 1
            ids = texts(
                self._calls.one(
                    *("ZRANGEBYSCORE", shard.queue, 0, due_max, "LIMIT", 0, STALE_BATCH),
                )
            )
            if not ids:
                continue
            found = self._calls.script(
                scripts.STALE,
                [self._bodies],
                *(shard.queue, shard.unack, len(ids)),
                *ids,
            )
            stale += [Message(message_id) for message_id in texts(found)]
        return stale

    def clear(self) -> None:
        """Drop everything, of all shards."""
        self._calls.one("DEL", *self._key_pairs(self._all()), self._bodies)

    def _overdue(self) -> list[tuple[str, float]]:
        """Ids in unack whose time is over, with their deadlines."""
        return scored(
            self._calls.one(
                *("ZRANGEBYSCORE", self._own.unack, 0, self._clock(), "WITHSCORES"),
                *("LIMIT", 0, UNACK_BATCH),
            )
        )
