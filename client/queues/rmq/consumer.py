"""RmqConsumer: two-phase consumption of an RMQ topic.

Only a commit removes a message. `prepare` leases it; a rollback or the end of the lease returns it.
After 1 + 16 deliveries it becomes a dead letter, until it is replayed manually.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from delaylog.client._sync.message import Message
from delaylog.client.errors import AWAY
from delaylog.client.models import Changed, Settled
from delaylog.client.queues.rmq.delivery import RmqDeadLetter, RmqDelivery, RolledBack
from delaylog.client.queues.rmq.identity import slot_in
from delaylog.client.queues.rmq.topic import SLOTS, TIMEOUT_S, TopicKind, open_rmq_topic
from delaylog.client.surface import QueueClient

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
        priority topics.
        """
        lease_ms = int(self.timeout_s * 1000)
        received = self._client.receive(self.topic, max=max, wait_ms=wait_ms, lease_ms=lease_ms)
        return [_delivery(message) for message in received]

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
        """Iterate over the dead letters that were not replayed, in due order."""
        for info in self._client.dead(self.topic, bodies=True):
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
        return self._client.replay(self.topic, ids, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms)

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
                self._settled(lambda: self._client.extend(left, lease_ms=0))
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


def _delivery(message: Message) -> RmqDelivery:
    body = message.body.decode(errors="surrogateescape")
    return RmqDelivery(body, slot_in(message.id), message.attempts, message)
