"""RMQ's three kinds of message on the native API: topics, producers, consumers.

The body identifies a message: the same body in the same slot is the same message. So equal bodies
must have equal slot bases. Two bodies never share an id: the id of a short body contains the body,
the id of a long one its SHA-256, so no send has to compare stored bodies. A separator after the
slot distinguishes the two kinds of id.

Slots and kind of a topic never change. Opening a topic with other slots or another kind raises an
error and changes nothing. A send returns once the message is on disk. The broker decides what a
repeated body does, also when two producers send it concurrently.

Consumption has two phases, and only a commit removes a message. `prepare` leases it; a rollback or
the end of the lease returns it. After 1 + 16 deliveries it becomes a dead letter, until it is
replayed manually.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Any, Final
from zlib import crc32

from delaylog.client._sync.message import Message
from delaylog.client._sync.surface import QueueClient
from delaylog.client.errors import AWAY, ClientError
from delaylog.client.models import Changed, NewMessage, Settled, TopicSettings
from delaylog.client.queues.queue_topics import NO_BACKOFF, open_topic
from delaylog.client.wire.times import span_of

# ------------------------------------------------------------------------------------- messages

RETRIES_MAX = 16
"""The number of deliveries after the first. Priorities start above it."""


@dataclass(frozen=True, slots=True)
class RangeMergeMessage:
    """Delivered `time_range_ms` after its first send; later sends of the body merge into it."""

    body: str
    time_range_ms: int
    slot_basis: str | None = None

    def __post_init__(self) -> None:
        if self.time_range_ms <= 0:
            raise ValueError(f"a time range is more than 0 ms, not {self.time_range_ms}")


@dataclass(frozen=True, slots=True)
class PriorityMessage:
    """Delivered immediately, the highest priority first."""

    body: str
    priority: int
    slot_basis: str | None = None

    def __post_init__(self) -> None:
        if self.priority <= RETRIES_MAX:
            raise ValueError(f"a priority is more than {RETRIES_MAX}, not {self.priority}")


@dataclass(frozen=True, slots=True)
class FixedTimeMessage:
    """Delivered at a time; a later send of the same body moves it."""

    body: str
    fixed_time_ms: int
    slot_basis: str | None = None


RmqMessage = RangeMergeMessage | PriorityMessage | FixedTimeMessage


# --------------------------------------------------------------- the slot, id and key of a body

ID_BYTES_MAX = 255
KEY_BYTES_MAX = 255
SLOTS_MAX = 1 << 14
_PLAIN = "="
_HASHED = "#"


def check_slots(slots: int) -> int:
    """Check the number of slots. Raises ValueError."""
    if not 1 <= slots <= SLOTS_MAX or slots & (slots - 1):
        raise ValueError(f"the number of slots is a power of two up to {SLOTS_MAX}, not {slots}")
    return slots


def slot_of(message: RmqMessage, slots: int) -> int:
    """The slot of a message: the CRC32 (zlib) of its slot basis, or of its body."""
    basis = message.body if message.slot_basis is None else message.slot_basis
    return crc32(basis.encode()) & (slots - 1)


def id_of(body: str, slot: int) -> str:
    """The id of a body in a slot: at most 255 bytes without control characters."""
    plain = f"{slot}{_PLAIN}{body}"
    raw = body.encode()
    if body.isprintable() and len(str(slot)) + 1 + len(raw) <= ID_BYTES_MAX:
        return plain
    return f"{slot}{_HASHED}{sha256(raw).hexdigest()}"


def slot_in(message_id: str) -> int:
    """The slot of an id of `id_of`. ValueError for any other id."""
    digits = message_id[: len(message_id) - len(message_id.lstrip("0123456789"))]
    if not digits or message_id[len(digits) : len(digits) + 1] not in (_PLAIN, _HASHED):
        raise ValueError(f"{message_id!r} is no id of an RMQ message")
    return int(digits)


def key_of(message: RmqMessage) -> str | None:
    """The ordering key, so that messages with one slot basis are handled one at a time.

    None without a slot basis: a body is one message at a time anyway.
    """
    basis = message.slot_basis
    if basis and len(basis.encode()) > KEY_BYTES_MAX:
        return sha256(basis.encode()).hexdigest()
    return basis or None


# --------------------------------------------------------------------------------------- topics

SLOTS: Final = 8
TIMEOUT_S: Final = 60.0
"""Default time to commit."""


class TopicKind(Enum):
    """The kind of message of a topic."""

    RANGE_MERGE = RangeMergeMessage
    PRIORITY = PriorityMessage
    FIXED_TIME = FixedTimeMessage

    @classmethod
    def of(cls, message: RmqMessage) -> TopicKind:
        """The kind of a message. TypeError if it is not an RMQ message."""
        try:
            return cls(type(message))
        except ValueError:
            raise TypeError(
                f"an RMQ message is of RangeMerge, Priority or FixedTime, not {type(message)}"
            ) from None


_OF_KIND: Final[Mapping[TopicKind, Mapping[str, str]]] = {
    TopicKind.RANGE_MERGE: {"order": "time", "merge": "keep", "merge_leased": "successor"},
    TopicKind.PRIORITY: {"order": "priority", "merge": "replace", "merge_leased": "successor"},
    TopicKind.FIXED_TIME: {"order": "time", "merge": "replace", "merge_leased": "successor"},
}


def open_rmq_topic(
    client: QueueClient,
    topic: str,
    kind: TopicKind,
    *,
    slots: int = SLOTS,
    rate_limit: Mapping[str, float] | None = None,
) -> TopicSettings:
    """Create the topic, or check that it has this kind and number of slots.

    `rate_limit` (`{"per_second": …, "burst": …}`) limits the deliveries of a new topic. ValueError
    if `slots` is not a power of two; TopicMismatch if an existing topic differs.
    """
    if not isinstance(kind, TopicKind):
        raise TypeError(f"kind is a TopicKind, not {kind!r}")
    needed = {
        "slots": check_slots(slots),
        "max_retry": RETRIES_MAX,
        "ttl_ms": -1,
        "backoff": NO_BACKOFF,
        **_OF_KIND[kind],
    }
    first: dict[str, Any] = {} if rate_limit is None else {"rate_limit": dict(rate_limit)}
    return open_topic(client, topic, needed, first)


# ------------------------------------------------------------------------------------ producing


class RmqProducer:
    """Sends to one topic: `RmqProducer(client, "orders", slots=8).send(message)`.

    The topic is created by the first message, for its kind, or immediately if `kind` is given. An
    existing topic with other slots or of another kind is refused (`TopicMismatch`). `rate_limit`
    (`{"per_second": …, "burst": …}`) limits the deliveries of a new topic.

    What a repeated body does while the message is live:

    - **RangeMerge** merges into it: the first time stays, also while it is overdue or waits for a
      retry.
    - **Priority** and **FixedTime** replace it: the new priority or time counts, and all
      retries are available again.
    - While a consumer handles the message, all three kinds create a new message, which is delivered
      after the current delivery has ended. So a change during handling is never lost.
    """

    def __init__(
        self,
        client: QueueClient,
        topic: str,
        kind: TopicKind | None = None,
        *,
        slots: int = SLOTS,
        rate_limit: Mapping[str, float] | None = None,
    ) -> None:
        self.topic = topic
        self.slots = check_slots(slots)
        self._client = client
        self._rate_limit = rate_limit
        self._kind: TopicKind | None = None
        if kind is not None:
            self._open(kind)

    @property
    def kind(self) -> TopicKind | None:
        """The kind of the topic; None before the first message."""
        return self._kind

    def slot_of(self, message: RmqMessage) -> int:
        """The slot of a message: CRC32 of the slot basis or the body, modulo the slots."""
        return slot_of(message, self.slots)

    def send(self, message: RmqMessage) -> bool:
        """Send a message. True if it is new, False if it was merged into a live message.

        TypeError for a message of another kind than the topic's. A fixed time in the past, by the
        broker's clock, means now.
        """
        return self.send_many([message])[0]

    def send_many(self, messages: Iterable[RmqMessage]) -> list[bool]:
        """Like `send` for each message in order, in few requests."""
        rows = [self._row(message) for message in messages]
        if not rows:
            return []
        return [sent.result == "created" for sent in self._client.send_many(self.topic, rows)]

    def _row(self, message: RmqMessage) -> NewMessage:
        kind = TopicKind.of(message)
        if self._kind is None:
            self._open(kind)
        elif kind is not self._kind:
            carried = self._kind.value.__name__
            raise TypeError(
                f"topic {self.topic!r} carries {carried} only, not {kind.value.__name__}"
            )
        slot = self.slot_of(message)
        delay, deliver_at_ms, priority = None, None, None
        if isinstance(message, RangeMergeMessage):
            delay = span_of(message.time_range_ms)
        elif isinstance(message, FixedTimeMessage):
            deliver_at_ms = message.fixed_time_ms
        else:
            assert isinstance(message, PriorityMessage), "there are three kinds"
            priority = message.priority
        return NewMessage(
            message.body,
            delay=delay,
            deliver_at_ms=deliver_at_ms,
            priority=priority,
            id=id_of(message.body, slot),
            key=key_of(message),
        )

    def _open(self, kind: TopicKind) -> None:
        open_rmq_topic(
            self._client, self.topic, kind, slots=self.slots, rate_limit=self._rate_limit
        )
        self._kind = kind


# ---------------------------------------------- deliveries, dead letters, results of a rollback


@dataclass(frozen=True, slots=True)
class RmqDelivery:
    """A taken message. Commit it or roll it back before its time to commit is over."""

    body: str
    slot: int
    attempt: int
    """1 at the first delivery, 17 at the last."""
    message: Message = field(repr=False)
    """The leased message."""

    @property
    def retries_left(self) -> int:
        """How many more deliveries are possible."""
        return max(0, RETRIES_MAX + 1 - self.attempt)


@dataclass(frozen=True, slots=True)
class RmqDeadLetter:
    """A message that failed 17 times."""

    body: str
    slot: int
    id: str
    died_at_ms: int


class RolledBack(Enum):
    """The result of a rollback."""

    GONE = "gone"
    """It was already committed, or its time was over: nothing was done."""
    RETRY = "retry"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """An answer was lost: it was rolled back, or its time was over. It is redelivered."""


# ------------------------------------------------------------------------------------ consuming

logger = logging.getLogger(__name__)

WAIT_MS = 1_000
"""The wait of each receive in `run`, and so the longest delay of a stop."""

AWAY_S_MAX = 5.0
"""The longest pause of `run` between two tries to reach the broker."""

Handler = Callable[[RmqDelivery], object]


class RmqConsumer:
    """A consumer of one topic. Any number of consumers share the messages of a topic.

    `timeout_s` is the time to commit. With `kind`, the constructor creates the topic or compares
    its settings (`TopicMismatch`). Without it, the topic is used as it is, and waited for if it
    does not exist yet.

    In the original, one thread per slot ensures that equal bodies, and bodies with the same slot
    basis, are never handled concurrently. Here the broker ensures it: it delivers a body, changed
    or not, or another message with the same slot basis only after the current delivery has ended.
    So slots are not assigned to consumers.
    """

    def __init__(
        self,
        client: QueueClient,
        topic: str,
        *,
        kind: TopicKind | None = None,
        slots: int = SLOTS,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if timeout_s <= 0:
            raise ValueError(f"a time to commit is more than 0 s, not {timeout_s}")
        self.topic = topic
        self.timeout_s = timeout_s
        self._client = client
        if kind is not None:
            open_rmq_topic(client, topic, kind, slots=slots)

    def prepare(self, max: int = 1, *, wait_ms: int = 0) -> list[RmqDelivery]:
        """Take up to `max` messages, waiting up to `wait_ms` for the first.

        Timed topics deliver the longest overdue message first, priority topics the one with the
        highest priority. A failed message comes first in timed topics, and after all others in
        priority topics. What no RmqProducer has sent becomes a dead letter.
        """
        lease_ms = int(self.timeout_s * 1000)
        received = self._client.receive(
            self.topic,
            max=max,
            wait=span_of(wait_ms),
            lease=span_of(lease_ms),
        )
        own: list[Message] = []
        foreign: list[Message] = []
        for message in received:
            (own if _is_own(self.topic, message.id) else foreign).append(message)
        if foreign:
            try:
                self._client.reject(foreign, reason="this is no message of RMQ")
            except ClientError as error:
                # The others are not lost because of it.
                logger.warning("%d messages return when their leases end: %s", len(foreign), error)
        return [_delivery(message) for message in own]

    def commit(self, delivery: RmqDelivery) -> Settled:
        """Acknowledge a message. `gone`: its time was over, and it is delivered again."""
        return self._client.ack(delivery.message)[0]

    def roll_back(self, delivery: RmqDelivery) -> RolledBack:
        """Return a failed message: it is redelivered immediately, or dead after its last retry.

        This affects only the given delivery, not a later one or a newer send of the body.
        """
        settled = self._client.nack(delivery.message)[0]
        if settled is Settled.UNKNOWN:
            return RolledBack.UNKNOWN
        if settled is Settled.GONE:
            return RolledBack.GONE
        return RolledBack.RETRY if delivery.retries_left else RolledBack.DEAD

    def run(
        self,
        handle: Handler,
        *,
        stop: threading.Event | None = None,
        batch: int = 1,
        wait_ms: int = WAIT_MS,
    ) -> int:
        """Handle messages one by one until `stop` is set. Returns the number of commits.

        A message is committed when the handler returns. When it raises, the error is logged and the
        message is rolled back. `batch` messages are taken at a time; those whose time is over
        before their turn are skipped, since they are redelivered. Unhandled messages are returned
        at the end. Run it in several threads to handle messages concurrently. If the broker is
        unreachable, it retries with pauses of up to 5 s. TypeError if the handler is not callable.
        """
        if not callable(handle):
            raise TypeError(f"a handler is called with a delivery; {handle!r} cannot be")
        stopped = stop or threading.Event()
        committed, pause_s = 0, 0.1
        while not stopped.is_set():
            taken_at = time.monotonic()
            try:
                deliveries = self.prepare(batch, wait_ms=wait_ms)
            except AWAY as away:
                logger.warning("no messages of %s for now: %s", self.topic, away)
                stopped.wait(pause_s)
                pause_s = min(2 * pause_s, AWAY_S_MAX)
                continue
            pause_s = 0.1
            committed += self._handle_all(handle, deliveries, taken_at + self.timeout_s, stopped)
        return committed

    def dead_letters(self) -> Iterator[RmqDeadLetter]:
        """Iterate over the dead letters that were not replayed, in due order.

        Those that no RmqProducer has sent are left out.
        """
        for info in self._client.dead(self.topic, bodies=True):
            if not _is_own(self.topic, info.id):
                continue
            body = (info.body or b"").decode(errors="surrogateescape")
            yield RmqDeadLetter(body, slot_in(info.id), info.id, info.ended_at_ms or 0)

    def replay(
        self,
        letters: Iterable[RmqDeadLetter],
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> list[Changed]:
        """Replay dead letters manually, now or at a time, with all retries.

        Result per letter: `done`, `too_late` (it or a newer send of its body is live) or `unknown`.
        A priority message keeps its priority.
        """
        ids = [letter.id for letter in letters]
        if not ids:
            return []
        delay = None if delay_ms is None else span_of(delay_ms)
        return self._client.replay(self.topic, ids, deliver_at_ms=deliver_at_ms, delay=delay)

    def limit_rate(self, per_second: float | None, *, burst: int = 1) -> None:
        """Limit the deliveries of the topic, over all its consumers; None removes the limit."""
        limit = None if per_second is None else {"per_second": per_second, "burst": burst}
        self._client.update_topic(self.topic, rate_limit=limit)

    def depth(self) -> int:
        """The number of waiting messages, due or not, without those being handled."""
        counts = self._client.stats(self.topic).counts
        return counts.waiting + counts.ready

    def _handle_all(
        self,
        handle: Handler,
        deliveries: Sequence[RmqDelivery],
        until: float,
        stopped: threading.Event,
    ) -> int:
        committed, begun = 0, 0
        try:
            for delivery in deliveries:
                if stopped.is_set() or time.monotonic() >= until:
                    break
                begun += 1
                committed += self._handle(handle, delivery)
        finally:
            left = [delivery.message for delivery in deliveries[begun:]]
            if left:
                self._settled(lambda: self._client.release(left))
        return committed

    def _handle(self, handle: Handler, delivery: RmqDelivery) -> bool:
        try:
            handle(delivery)
        except Exception:
            logger.exception("a message of %s failed, attempt %d", self.topic, delivery.attempt)
            self._settled(lambda: self.roll_back(delivery))
            return False
        except BaseException:
            self._settled(lambda: self.roll_back(delivery))
            raise
        return self._settled(lambda: self.commit(delivery)) is Settled.DONE

    def _settled(self, settle: Callable[[], object]) -> object:
        """Settle a message. If the broker is unreachable, the lease expires instead."""
        try:
            return settle()
        except AWAY as away:
            logger.warning("a message of %s could not be settled: %s", self.topic, away)
            return None


def _is_own(topic: str, message_id: str) -> bool:
    """Whether a message is of RMQ. Other programs may send to the topic too."""
    try:
        slot_in(message_id)
    except ValueError as error:
        logger.warning("topic %s: %s", topic, error)
        return False
    return True


def _delivery(message: Message) -> RmqDelivery:
    body = message.body.decode(errors="surrogateescape")
    return RmqDelivery(body, slot_in(message.id), message.attempts, message)
