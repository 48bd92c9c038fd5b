"""DynoQueue: all calls of a Dyno queue, on the native API.

Results are those of the original where these are sane, otherwise the true state at the broker,
under any race. Each difference is documented at its method. A taken message is leased, and the
broker grants a lease to one consumer only. So there are no locks, no prefetched ids that another
consumer may take, and no partially executed calls. Of the calls that read, only
`pop_msg_with_predicate` changes the queue: it takes the message that it finds. Predicates get the
JSON of a message as the original stores it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from heapq import merge
from itertools import groupby
from math import ceil
from typing import Final, Self
from zlib import crc32

from delaylog.client._sync.message import Message as Delivery
from delaylog.client.errors import AWAY, ClientError, NotFound, NotReached, TooLate
from delaylog.client.models import MessageInfo, NewMessage, Settled, State
from delaylog.client.queues.dyno_message import Message, encode
from delaylog.client.queues.dyno_shards import (
    TIMEOUT_HEADER,
    DynoShards,
    Shard,
    broker_priority,
    dyno_priority,
    message_of,
)
from delaylog.client.shards.settlements import Verb
from delaylog.client.wire.times import span_of

log = logging.getLogger(__name__)

# ----------------------------------------------------------------- taking: pop, pop by id, peek

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
        Unreachable shards are skipped; it raises only if all of them are, and nothing was taken.
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
        """Return up to `count` due messages, shard by shard, the own shard first. Shards that are
        away are left out.
        """
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
        away = 0
        for shard in shards:
            if len(seen) < count:
                try:
                    found = shard.client.peek(shard.topic, max=min(count - len(seen), RECEIVE_MAX))
                except AWAY as error:
                    away += 1
                    if away == len(shards):
                        raise
                    self._warn_without(shard, error)
                    continue
                seen += [message_of(shard, info) for info in found]
        return seen

    def _warn_without(self, shard: Shard, error: ClientError) -> None:
        log.warning("queue %s goes on without shard %s: %s", self.name, shard.name, error)

    def _take_due(self, shard: Shard, message_id: str, wait_ms: int = 0) -> Message | None:
        received = shard.client.receive(
            shard.topic,
            max=1,
            wait=span_of(wait_ms),
            lease=span_of(self.unack_ms),
            ids=[message_id],
        )
        self._held.keep(shard.name, received)
        return message_of(shard, received[0]) if received else None

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
            client.reschedule(topic, message_id, delay=timedelta(0))
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
    """One pop: rounds over the shards until it is full or times out.

    A shard that does not answer is left out from then on: each try may take seconds.
    """

    def __init__(
        self, queue: DynoTaking, shards: Sequence[Shard], count: int, wait_ms: int
    ) -> None:
        self._queue = queue
        self._shards = list(shards)
        """Those that have answered so far."""
        self._count = count
        self._until = time.monotonic() + wait_ms / 1000
        self._taken: list[tuple[Shard, Delivery]] = []
        self._renewed_at = 0.0
        """When the oldest lease of this pop started or was extended."""

    def run(self) -> list[Message]:
        """The messages, in order of arrival."""
        try:
            self._fill()
            if time.monotonic() - self._renewed_at > self._unack_s / 10:
                self._renew()
            return [message_of(shard, each) for shard, each in self._taken]
        except BaseException:
            self._give_back()
            raise

    def _fill(self) -> None:
        while True:
            for shard in list(self._shards):
                while not self._full and self._receive(shard, 0):
                    pass
            left_s = self._until - time.monotonic()
            if self._full or left_s <= 0 or not self._shards:
                return
            self._wait(left_s)

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
                if not self._shards:
                    return
            wait_s = min(wait_s, self._renewed_at + half_s - time.monotonic())
        began = time.monotonic()
        if not self._receive(self._shards[0], max(0, ceil(wait_s * 1000))):
            # A broker whose clock is moved by hand returns early.
            time.sleep(max(0.0, min(PAUSE_S, began + wait_s - time.monotonic())))

    def _receive(self, shard: Shard, wait_ms: int) -> int:
        queue = self._queue
        began = time.perf_counter()
        try:
            received = shard.client.receive(
                shard.topic,
                max=min(self._count - len(self._taken), RECEIVE_MAX),
                wait=span_of(wait_ms),
                lease=span_of(queue.unack_ms),
            )
        except AWAY as error:
            self._leave_out(shard, error)
            return 0
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
        for shard in list(self._shards):
            mine = self._taken_from(shard)
            if mine:
                try:
                    settled = shard.client.extend(mine, lease=span_of(self._queue.unack_ms))
                except AWAY as error:
                    self._leave_out(shard, error)
                    continue
                gone |= {e for e, how in zip(mine, settled, strict=True) if how is Settled.GONE}
        self._taken = [(place, each) for place, each in self._taken if each not in gone]

    def _taken_from(self, shard: Shard) -> list[Delivery]:
        return [each for place, each in self._taken if place is shard]

    def _leave_out(self, shard: Shard, error: ClientError) -> None:
        """Go on without a shard. Raises its error if there is no other, and no message."""
        self._shards.remove(shard)
        if not self._shards and not self._taken:
            raise error
        if self._taken_from(shard):
            # Their leases are extended no more, so they must not wait for others.
            self._until = 0.0
        self._queue._warn_without(shard, error)

    def _give_back(self) -> None:
        """Return what was taken, since the caller does not get it."""
        for shard in {place.name: place for place, _ in self._taken}.values():
            mine = self._taken_from(shard)
            for message in mine:
                self._queue._held.drop(message.id, message)
            with suppress(ClientError):
                shard.client.release(mine)


# ----------------------------------------------- pushing, acknowledging, rescheduling, removing

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
        lease = span_of(timeout_ms)
        held = self._held.find(message_id)
        if held is not None:
            shard, message = held
            settled = self._shards[shard].client.extend(message, lease=lease)[0]
            return settled is Settled.DONE
        return self._forced("extend", self._all(), [message_id], lease=lease)[0]

    def set_timeout(self, message_id: str, timeout_ms: int) -> bool:
        """Make a queued message due `timeout_ms` from now. False if it is not queued.

        Unlike in the original, its priority still applies, and the message keeps the `timeout_ms`
        of the push.
        """
        if timeout_ms < 0:
            raise ValueError(f"a timeout is 0 ms or more, not {timeout_ms}")
        delay = span_of(timeout_ms)
        for shard in self._all():
            try:
                shard.client.reschedule(shard.topic, message_id, delay=delay)
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
        self,
        verb: Verb,
        shards: Sequence[Shard],
        ids: Sequence[str],
        lease: timedelta | None = None,
    ) -> list[bool]:
        """Settle by id, shard by shard. Returns for each id whether it was taken."""
        done = dict.fromkeys(ids, False)
        for shard in shards:
            left = [message_id for message_id, was in done.items() if not was]
            if not left:
                break
            for at in range(0, len(left), FORCED_BATCH):
                part = left[at : at + FORCED_BATCH]
                settled = shard.client.settle_ids(shard.topic, verb, part, lease=lease)
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
        delay=span_of(message.timeout_ms),
        id=message.id,
        priority=broker_priority(message.priority),
        headers={TIMEOUT_HEADER: str(message.timeout_ms)} if message.timeout_ms else None,
    )


# ------------------------------------------------------------------------ reading and searching

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


# ------------------------------------------------------------------------------------ the queue


class DynoQueue(DynoSettling, DynoLooking):
    """A delay queue in shards: at least once, by due time and then priority within a shard.

    - `DynoQueue(client, "orders")` has one shard, the topic `orders`.
    - `DynoQueue(client, "orders", shards=["a", "b"], own_shard="a")` has the topics `orders.a` and
      `orders.b` of that client.
    - `DynoQueue({"a": client_a, "b": client_b}, "orders", own_shard="a")` has the topic `orders` on
      each client: a broker or cluster in each zone, as the original has an endpoint in each.

    `pop`, `peek` and most other calls use the own shard (default: the first one). `unack_ms` is how
    long a taken message may stay unacknowledged before it is delivered again; `strategy` chooses
    the shard of a push (default: round robin, starting with the second shard). Missing topics are
    created with the required settings; existing ones are compared (`TopicMismatch`).

    `name` and `unack_ms` are the original's getName and getUnackTime. Errors are those of the
    client (`delaylog.client.ClientError`), which retries idempotent calls. A queue is thread-safe
    if its client is. Priorities are 0..99; among messages due in the same millisecond the lowest
    comes first. A message that was delivered 65,535 times without an acknowledgement becomes a dead
    letter of its topic; the original delivers it forever.
    """

    def process_unacks(self) -> int:
        """Record the depth of the queue, and return 0, the number of moved messages.

        There is nothing to move: unacknowledged messages return by themselves within 50 ms.
        """
        with self.stats.timed("process_unack"):
            self.stats.record("queue_depth", self.size())
        return 0

    def atomic_process_unacks(self) -> int:
        """As `process_unacks`."""
        return self.process_unacks()

    def clear(self) -> None:
        """Remove all messages of all shards, queued or taken."""
        for shard in self._all():
            shard.client.purge(shard.topic, force=True)
        self._held.clear()

    def close(self) -> None:
        """Forget the leases of this object; their messages return when the leases end.

        The client stays open, since it belongs to the caller.
        """
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
