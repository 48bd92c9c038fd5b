"""Putting messages in, acknowledging them, moving their times, taking them out again.

The one rule: the body goes first and leaves last, so that an id in a queue without a body is
always the rest of something that ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from delaylog.client.queues.dyno.message import Message, encode
from tests.redis.recipes.connection import Command
from tests.redis.recipes.dyno import scripts
from tests.redis.recipes.dyno.shards import DynoShards


class DynoSettling(DynoShards):
    """What producers do, and what consumers do with a message that they have."""

    def push(self, messages: Iterable[Message]) -> list[str]:
        """Put messages in, shard by shard in turn; answer their ids.

        A known id gets a new body, and in the same shard a new time; in another shard it is then
        in two queues.
        """
        now_ms = self._clock()
        ids: list[str] = []
        commands: list[Command] = []
        for message in messages:
            commands.append(("HSET", self._bodies, message.id, encode(message)))
            queue = self._next_shard().queue
            commands.append(("ZADD", queue, due_score(message, now_ms), message.id))
            ids.append(message.id)
        self._calls.many(commands)
        return ids

    def ensure(self, message: Message) -> bool:
        """Push it only if no shard has the id, queued or taken. Two callers may both push."""
        places = self._key_pairs(self._all())
        scores = self._calls.many([("ZSCORE", key, message.id) for key in places])
        if any(found is not None for found in scores):
            return False
        self.push([message])
        return True

    def ack(self, message_id: str) -> bool:
        """The message is done with. False if it was in no unack set (any more)."""
        for shard in self._all():
            if int(self._calls.one("ZREM", shard.unack, message_id)) > 0:
                self._calls.one("HDEL", self._bodies, message_id)
                return True
        return False

    def ack_all(self, messages: Sequence[Message]) -> None:
        """All these messages are done with."""
        for message in messages:
            self.ack(message.id)

    def set_unack_timeout(self, message_id: str, timeout_ms: int) -> bool:
        """Give a taken message until `timeout_ms` from now; 0 makes it come back at the next
        `process_unacks`. False if it is in no unack set.
        """
        for shard in self._all():
            if self._calls.one("ZSCORE", shard.unack, message_id) is None:
                continue
            deadline_ms = self._clock() + timeout_ms
            self._calls.one("ZADD", shard.unack, deadline_ms, message_id)
            return True
        return False

    def set_timeout(self, message_id: str, timeout_ms: int) -> bool:
        """Make a queued message due `timeout_ms` from now. False if it is not in a queue (any
        more). Its priority no longer counts in its place: the original divides it as an integer.
        """
        stored = self._calls.one("HGET", self._bodies, message_id)
        message = self._message(stored)
        if message is None:
            return False
        for shard in self._all():
            if self._calls.one("ZSCORE", shard.queue, message_id) is None:
                continue
            due_ms = self._clock() + timeout_ms
            body = encode(replace(message, timeout_ms=timeout_ms))
            self._calls.one("ZADD", shard.queue, "XX", due_ms, message_id)
            self._calls.one("HSET", self._bodies, message_id, body)
            return True
        return False

    def remove(self, message_id: str) -> bool:
        """Take it out of a queue for good; only then the answer is true. A taken message loses
        its place in unack and keeps its body.
        """
        for shard in self._all():
            self._calls.one("ZREM", shard.unack, message_id)
            if int(self._calls.one("ZREM", shard.queue, message_id)) > 0:
                self._calls.one("HDEL", self._bodies, message_id)
                return True
        return False

    def atomic_remove(self, message_id: str) -> bool:
        """Take it out of everything by one script. True if it was anywhere."""
        removed = self._calls.script(
            scripts.REMOVE,
            [self._bodies],
            message_id,
            len(self._shards),
            *self._key_pairs(self._all()),
        )
        return int(removed) > 0


def due_score(message: Message, now_ms: int) -> float:
    """Where a message stands in its queue: its time, and its priority as a fraction of one."""
    return now_ms + message.timeout_ms + message.priority / 100
