"""What a queue holds: one message, all of them, counts, and searches in the bodies.

The one rule: nothing here changes a queue but `pop_msg_with_predicate`, which takes what it found.
Predicates are Lua patterns, matched against the whole JSON text of a body.
"""

from __future__ import annotations

from delaylog.client.queues.dyno.message import Message
from tests.redis.recipes.dyno import scripts
from tests.redis.recipes.dyno.shards import DynoShards
from tests.redis.recipes.replies import mapping, text, text_or_none


class DynoLooking(DynoShards):
    """Reading and searching."""

    def get(self, message_id: str) -> Message | None:
        """The message, queued or taken; none after it was acknowledged."""
        return self._message(self._calls.one("HGET", self._bodies, message_id))

    def local_get(self, message_id: str) -> Message | None:
        """As `get`. Where each zone has its own endpoint, this one's."""
        return self._message(self._calls.one("HGET", self._bodies, message_id))

    def get_all_messages(self) -> list[Message]:
        """All of them, queued or taken; the payload of each is its whole JSON text."""
        bodies = mapping(self._calls.one("HGETALL", self._bodies))
        return [Message(message_id, body) for message_id, body in bodies.items()]

    def size(self) -> int:
        """How many wait in all queues, due or not; taken ones do not count."""
        queues = [("ZCARD", shard.queue) for shard in self._all()]
        return sum(int(size) for size in self._calls.many(queues))

    def shard_sizes(self) -> dict[str, dict[str, int]]:
        """Of each shard how many are queued, `size`, and taken, `uacked`."""
        sets = [("ZCARD", key) for key in self._key_pairs(self._all())]
        sizes = [int(size) for size in self._calls.many(sets)]
        return {
            name: {"size": sizes[2 * at], "uacked": sizes[2 * at + 1]}
            for at, name in enumerate(self._shard_names)
        }

    def contains_predicate(self, pattern: str, *, local: bool = False) -> bool:
        """Whether any body matches; with `local`, one that is queued in the own shard."""
        return self._find(pattern, local=local) is not None

    def get_msg_with_predicate(self, pattern: str, *, local: bool = False) -> str | None:
        """The id of the first match in the order of the hash."""
        return self._find(pattern, local=local)

    def pop_msg_with_predicate(self, pattern: str, *, local: bool = False) -> Message | None:
        """Take the due match that comes first; its payload is its whole JSON text."""
        shards = (self._own,) if local else self._all()
        now_ms = self._clock()
        found = self._calls.script(
            scripts.POP_MATCHING,
            [self._bodies],
            *(pattern, len(shards), now_ms + 1, now_ms + self.unack_ms),
            *self._key_pairs(shards),
        )
        return Message(text(found[0]), text(found[1])) if found else None

    def _find(self, pattern: str, *, local: bool) -> str | None:
        if local:
            found = self._calls.script(scripts.FIND_LOCAL, [self._bodies], pattern, self._own.queue)
        else:
            found = self._calls.script(scripts.FIND, [self._bodies], pattern)
        return text_or_none(found)
