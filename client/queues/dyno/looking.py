"""Reading a queue: single messages, all messages, counts, and searches.

Only `pop_msg_with_predicate` changes the queue: it takes the message that it finds. Predicates get
the JSON of a message as the original stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from typing import Final

from delaylog.client.errors import NotFound
from delaylog.client.models import MessageInfo, State
from delaylog.client.queues.dyno.message import Message, encode
from delaylog.client.queues.dyno.settling import ENDED
from delaylog.client.queues.dyno.shards import Shard, dyno_priority, message_of
from delaylog.client.queues.dyno.taking import DynoTaking

Predicate = Callable[[str], object]
"""A function of the JSON text; the truth value of its result counts."""

QUEUED: Final[tuple[State, ...]] = ("waiting", "ready")
LIVING: Final[tuple[State, ...]] = (*QUEUED, "leased")


class DynoLooking(DynoTaking):
    """Reading and searching."""

    def get(self, message_id: str) -> Message | None:
        """A queued or taken message, or None."""
        with self.stats.timed("get"):
            return self._first(self._all(), message_id)

    def local_get(self, message_id: str) -> Message | None:
        """Like `get`, in the own shard only."""
        with self.stats.timed("get"):
            return self._first([self._own], message_id)

    def get_all_messages(self) -> list[Message]:
        """All queued and taken messages; the payload of each is its complete JSON text."""
        return [
            Message(found.id, encode(found), shard=found.shard)
            for shard, info in self._listed(self._all(), LIVING)
            for found in [message_of(shard, info)]
        ]

    def size(self) -> int:
        """The number of queued messages in all shards, due or not, without taken ones."""
        with self.stats.timed("size"):
            return sum(sizes["size"] for sizes in self.shard_sizes().values())

    def shard_sizes(self) -> dict[str, dict[str, int]]:
        """For each shard the number of queued (`size`) and taken (`uacked`) messages."""
        sizes = {}
        for shard in self._all():
            counts = shard.client.stats(shard.topic).counts
            sizes[shard.name] = {"size": counts.waiting + counts.ready, "uacked": counts.leased}
        return sizes

    def contains_predicate(self, predicate: Predicate, *, local: bool = False) -> bool:
        """Whether any message matches, queued or taken.

        `local`: only messages queued in the own shard. The queue is read page by page until a match
        is found.
        """
        return self.get_msg_with_predicate(predicate, local=local) is not None

    def get_msg_with_predicate(self, predicate: Predicate, *, local: bool = False) -> str | None:
        """The id of the first match in due order, shard by shard."""
        shards, states = ((self._own,), QUEUED) if local else (self._all(), LIVING)
        for shard, info in self._listed(shards, states):
            found = message_of(shard, info)
            if predicate(encode(found)):
                return found.id
        return None

    def pop_msg_with_predicate(
        self, predicate: Predicate, *, local: bool = False
    ) -> Message | None:
        """Take the first due match over all shards; its payload is its complete JSON text.

        If another consumer takes it concurrently, the next match is taken.
        """
        shards = (self._own,) if local else self._all()
        for shard, info in _in_order([self._listed([shard], ("ready",)) for shard in shards]):
            text = encode(message_of(shard, info))
            if predicate(text) and self._take_due(shard, info.id) is not None:
                return Message(info.id, text, shard=shard.name)
        self.stats.missed()
        return None

    def _first(self, shards: Sequence[Shard], message_id: str) -> Message | None:
        for shard in shards:
            try:
                found = shard.client.get(shard.topic, message_id)
            except NotFound:
                continue
            if found.state not in ENDED:
                return message_of(shard, found)
        return None

    def _listed(
        self, shards: Sequence[Shard], states: Sequence[State]
    ) -> Iterator[tuple[Shard, MessageInfo]]:
        for shard in shards:
            for info in shard.client.browse(shard.topic, state=states, bodies=True):
                yield shard, info


def _in_order(
    listed: Sequence[Iterator[tuple[Shard, MessageInfo]]],
) -> Iterator[tuple[Shard, MessageInfo]]:
    """Merge shards by due time, and by priority within a millisecond."""
    merged = merge(*listed, key=lambda each: each[1].deliver_at_ms)
    for _, same in groupby(merged, key=lambda each: each[1].deliver_at_ms):
        yield from sorted(same, key=lambda each: dyno_priority(each[1].priority))
