"""What a queue holds: one message, all of them, counts, and searches in the bodies.

The one rule: nothing here changes a queue but `pop_msg_with_predicate`, which takes what it found.
Predicates see the JSON of a message as the original stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import groupby

from delaylog.client.errors import NotFound
from delaylog.client.models import MessageInfo
from delaylog.client.queues.dyno.message import Message, encode
from delaylog.client.queues.dyno.settling import ENDED
from delaylog.client.queues.dyno.shards import Shard, dyno_priority, message_of
from delaylog.client.queues.dyno.taking import DynoTaking

Predicate = Callable[[str], object]
"""A function of the JSON text whose answer counts as true or false."""

QUEUED = "waiting,ready"
LIVING = "waiting,ready,leased"


class DynoLooking(DynoTaking):
    """Reading and searching."""

    def get(self, message_id: str) -> Message | None:
        """The message, queued or taken; None after it was acknowledged."""
        with self.stats.timed("get"):
            return self._first(self._all(), message_id)

    def local_get(self, message_id: str) -> Message | None:
        """As `get`, of the own shard only."""
        with self.stats.timed("get"):
            return self._first([self._own], message_id)

    def get_all_messages(self) -> list[Message]:
        """All of them, queued or taken; the payload of each is its whole JSON text."""
        return [
            Message(found.id, encode(found), shard=found.shard)
            for shard, info in self._listed(self._all(), LIVING)
            for found in [message_of(shard, info)]
        ]

    def size(self) -> int:
        """How many wait in all queues, due or not; taken ones do not count."""
        with self.stats.timed("size"):
            return sum(sizes["size"] for sizes in self.shard_sizes().values())

    def shard_sizes(self) -> dict[str, dict[str, int]]:
        """Of each shard how many are queued, `size`, and taken, `uacked`."""
        sizes = {}
        for shard in self._all():
            counts = shard.client.stats(shard.topic).counts
            sizes[shard.name] = {"size": counts.waiting + counts.ready, "uacked": counts.leased}
        return sizes

    def contains_predicate(self, predicate: Predicate, *, local: bool = False) -> bool:
        """Whether any message matches, queued or taken; with `local`, one that is queued in the own
        shard. Reads what the queue holds until one is found, page by page.
        """
        return self.get_msg_with_predicate(predicate, local=local) is not None

    def get_msg_with_predicate(self, predicate: Predicate, *, local: bool = False) -> str | None:
        """The id of the first match in the order of due times, shard by shard."""
        shards, states = ((self._own,), QUEUED) if local else (self._all(), LIVING)
        for shard, info in self._listed(shards, states):
            found = message_of(shard, info)
            if predicate(encode(found)):
                return found.id
        return None

    def pop_msg_with_predicate(
        self, predicate: Predicate, *, local: bool = False
    ) -> Message | None:
        """Take the due match that comes first over all shards; its payload is its whole JSON text.

        If somebody else takes it in this moment the next match is taken.
        """
        shards = (self._own,) if local else self._all()
        for shard, info in _in_order([self._listed([shard], "ready") for shard in shards]):
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

    def _listed(self, shards: Sequence[Shard], states: str) -> Iterator[tuple[Shard, MessageInfo]]:
        for shard in shards:
            for info in shard.client.messages(shard.topic, state=states, bodies=True):
                yield shard, info


def _in_order(
    listed: Sequence[Iterator[tuple[Shard, MessageInfo]]],
) -> Iterator[tuple[Shard, MessageInfo]]:
    """Shards merged by due time, and by priority inside of a millisecond."""
    merged = merge(*listed, key=lambda each: each[1].deliver_at_ms)
    for _, same in groupby(merged, key=lambda each: each[1].deliver_at_ms):
        yield from sorted(same, key=lambda each: dyno_priority(each[1].priority))
