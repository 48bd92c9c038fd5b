"""Pushing, acknowledging, rescheduling and removing messages.

A result always states what the broker did, under any race. Where the original loses a message or
leaves garbage, the docstring says what happens here instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from zlib import crc32

from delaylog.client._sync.message import Message as Delivery
from delaylog.client.errors import NotFound, NotReached, TooLate
from delaylog.client.models import NewMessage, Settled
from delaylog.client.queues.dyno.message import Message
from delaylog.client.queues.dyno.shards import (
    TIMEOUT_HEADER,
    DynoShards,
    Shard,
    broker_priority,
)
from delaylog.client.shards.settling import Verb

ENDED = frozenset({"acked", "expired", "dead", "cancelled", "replaced"})
"""States in which a message is no longer in the queue."""

FORCED_BATCH = 1_000
"""The most ids per request that settles by id."""


class DynoSettling(DynoShards):
    """The calls of producers, and those of consumers for messages they have taken."""

    def push(self, messages: Iterable[Message]) -> list[str]:
        """Push messages to the shards that the strategy chooses. Returns their ids.

        By default shards take turns, and unreachable shards are skipped. Pushing a known id to its
        shard replaces body, time and priority. Pushed to another shard, the id is in two queues, as
        in the original; the strategy `by_id` prevents this.

        Pushing an id that is taken (in unack) creates a new message, which is delivered after the
        taken one has ended. In the original, acknowledging the taken one removes the new body, so
        that the change is lost. All messages of a shard are one batch, in order.
        """
        if isinstance(messages, (Message, str, bytes)):
            raise TypeError(f"push takes a list of Messages, not one {type(messages).__name__}")
        pushed = list(messages)
        for message in pushed:
            if not isinstance(message, Message):
                raise TypeError(f"push takes Messages, not {type(message).__name__}")
        if not pushed:
            return []
        with self.stats.timed("push", len(pushed)):
            strategy = self._strategy or self._round_robin
            by_shard: dict[str, list[Message]] = {}
            for message in pushed:
                by_shard.setdefault(strategy(self._shard_names, message), []).append(message)
            for name, rows in by_shard.items():
                self._push_to(self._shards[name], rows)
        return [message.id for message in pushed]

    def ensure(self, message: Message) -> bool:
        """Push a message if no shard has its id, queued or taken. Returns whether it was pushed.

        Of several concurrent callers exactly one pushes, since all use the shard given by the
        CRC32 of the id.
        """
        home = self._shards[by_id(self._shard_names, message)]
        others = [shard for shard in self._all() if shard is not home]
        if any(self._has(shard, message.id) for shard in others):
            return False
        [sent] = home.client.send_many(home.topic, [_row(message)], merge="keep")
        return sent.result == "created"

    def ack(self, message_id: str) -> bool:
        """Acknowledge a message. False if it was not taken, or no longer.

        An id that this object has taken is settled with its newest delivery here. If that comes too
        late, the result is False, and the delivery of another consumer is not affected (threads
        that share an object share its deliveries). Any other id is settled by force, no matter
        which consumer has it. While a newer push of the id waits, the id refers to that one, so the
        result is False.
        """
        with self.stats.timed("ack"):
            held = self._held.find(message_id)
            if held is not None:
                return self._ack_held(held[0], [held[1]]) == 1
            return self._forced("ack", self._all(), [message_id])[0]

    def ack_all(self, messages: Sequence[Message]) -> int:
        """Acknowledge messages. Returns how many of them were taken.

        This takes one request per lease. For a message that this object has not taken, its `shard`
        is asked, if it has one.
        """
        with self.stats.timed("ack"):
            done = 0
            held: dict[str, list[Delivery]] = {}
            bare: dict[str | None, list[str]] = {}
            for message in messages:
                found = self._held.find(message.id)
                if found is None:
                    bare.setdefault(message.shard, []).append(message.id)
                else:
                    held.setdefault(found[0], []).append(found[1])
            for name, mine in held.items():
                done += self._ack_held(name, mine)
            for place, ids in bare.items():
                known = self._shards.get(place) if place is not None else None
                done += sum(self._forced("ack", [known] if known else self._all(), ids))
            return done

    def set_unack_timeout(self, message_id: str, timeout_ms: int) -> bool:
        """Set the unack time of a taken message to `timeout_ms` from now; 0 returns it.

        False if it is not taken, or no longer.
        """
        if timeout_ms < 0:
            raise ValueError(f"a timeout is 0 ms or more, not {timeout_ms}")
        held = self._held.find(message_id)
        if held is not None:
            shard, message = held
            settled = self._shards[shard].client.extend(message, lease_ms=timeout_ms)[0]
            return settled is Settled.DONE
        return self._forced("extend", self._all(), [message_id], lease_ms=timeout_ms)[0]

    def set_timeout(self, message_id: str, timeout_ms: int) -> bool:
        """Make a queued message due `timeout_ms` from now. False if it is not queued.

        Unlike in the original, its priority still applies, and the message keeps the `timeout_ms`
        of the push.
        """
        if timeout_ms < 0:
            raise ValueError(f"a timeout is 0 ms or more, not {timeout_ms}")
        for shard in self._all():
            try:
                shard.client.reschedule(shard.topic, message_id, delay_ms=timeout_ms)
            except (NotFound, TooLate):
                continue
            return True
        return False

    def remove(self, message_id: str) -> bool:
        """Remove a queued message. Returns whether it was removed.

        A taken message is not affected. The original removes it from unack but keeps its body, so
        it is neither delivered again nor gone.
        """
        with self.stats.timed("remove"):
            return self._cancelled(message_id, force=False)

    def atomic_remove(self, message_id: str) -> bool:
        """Remove a message, queued or taken. Returns whether it existed.

        While a newer push of a taken id waits, the id refers to that one.
        """
        with self.stats.timed("remove"):
            return self._cancelled(message_id, force=True)

    def _push_to(self, shard: Shard, messages: Sequence[Message]) -> None:
        places = [shard]
        if self._strategy is None:
            at = self._shard_names.index(shard.name)
            turn = self._shard_names[at + 1 :] + self._shard_names[:at]
            places += [self._shards[name] for name in turn]
        rows = [_row(message) for message in messages]
        for left, place in zip(range(len(places) - 1, -1, -1), places, strict=True):
            try:
                place.client.send_many(place.topic, rows)
                return
            except NotReached:
                # The unreachable shard has accepted nothing.
                if left == 0:
                    raise

    def _ack_held(self, shard: str, messages: Sequence[Delivery]) -> int:
        """Acknowledge deliveries of this object. Returns how many were still taken.

        The others stay remembered, so that no later call settles them by id.
        """
        settled = self._shards[shard].client.ack(messages)
        done = [each for each, how in zip(messages, settled, strict=True) if how is Settled.DONE]
        for message in done:
            self._held.drop(message.id, message)
        return len(done)

    def _forced(
        self, verb: Verb, shards: Sequence[Shard], ids: Sequence[str], lease_ms: int | None = None
    ) -> list[bool]:
        """Settle by id, shard by shard. Returns for each id whether it was taken."""
        done = dict.fromkeys(ids, False)
        for shard in shards:
            left = [message_id for message_id, was in done.items() if not was]
            if not left:
                break
            for at in range(0, len(left), FORCED_BATCH):
                part = left[at : at + FORCED_BATCH]
                settled = shard.client.settle_ids(shard.topic, verb, part, lease_ms=lease_ms)
                for message_id, each in zip(part, settled, strict=True):
                    done[message_id] = each is Settled.DONE
        return [done[message_id] for message_id in ids]

    def _cancelled(self, message_id: str, *, force: bool) -> bool:
        """Cancel a message in all shards. Returns whether any shard had it."""
        found = False
        for shard in self._all():
            with suppress(NotFound, TooLate):
                shard.client.cancel(shard.topic, message_id, force=force)
                found = True
        return found

    def _has(self, shard: Shard, message_id: str) -> bool:
        try:
            return shard.client.get(shard.topic, message_id).state not in ENDED
        except NotFound:
            return False


def by_id(shards: Sequence[str], message: Message) -> str:
    """A strategy: the CRC32 of the id chooses the shard, so an id is in one queue only."""
    return shards[crc32(message.id.encode()) % len(shards)]


def _row(message: Message) -> NewMessage:
    return NewMessage(
        message.payload.encode(errors="surrogateescape"),
        delay_ms=message.timeout_ms,
        id=message.id,
        priority=broker_priority(message.priority),
        headers={TIMEOUT_HEADER: str(message.timeout_ms)} if message.timeout_ms else None,
    )
