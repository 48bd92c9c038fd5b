"""RmqConsumer: two-phase consumption of an RMQ topic.

The one rule: a message leaves the topic by a commit only. Prepare is a lease, a roll back or the
end of its time gives it back, and after 1 + 16 deliveries it is a dead letter until a person
replays it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from delaylog.client.errors import AnswerLost, NotReached, NotReady
from delaylog.client.message import Message
from delaylog.client.models import Changed, Settled
from delaylog.client.queues.opening import change_topic
from delaylog.client.queues.port import QueuePort
from delaylog.client.queues.rmq.delivery import RmqDeadLetter, RmqDelivery, RolledBack
from delaylog.client.queues.rmq.identity import slot_in
from delaylog.client.queues.rmq.topic import SLOTS, TIMEOUT_S, TopicKind, open_rmq_topic

logger = logging.getLogger(__name__)

WAIT_MS = 1_000
"""How long one look of `run` waits; after as long at most it sees that it is to stop."""

AWAY_S_MAX = 5.0
"""The longest pause of `run` between two tries to reach the broker."""

Handler = Callable[[RmqDelivery], object]


class RmqConsumer:
    """Takes from one topic. Any number of consumers may: they share its messages.

    `timeout_s` is the time to commit. With `kind` the topic is made, or compared, when the consumer
    is (`TopicMismatch`); without it the topic is taken as it is, and waited for where it is not
    there.

    The slots of the original are worked through by one thread each, so that equal bodies, and
    bodies of one slot basis, are never worked on twice at once. Here the broker sees to that: it
    hands a body out again, and a changed one, only when its delivery has ended, and so it does with
    messages of one slot basis. There is no slot to own, and no assignment to keep.
    """

    def __init__(
        self,
        client: QueuePort,
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

        Timed topics give the longest overdue first, priority topics the highest priority; what
        failed comes first in timed topics and behind all fresh ones in priority topics.
        """
        lease_ms = int(self.timeout_s * 1000)
        received = self._client.receive(self.topic, max=max, wait_ms=wait_ms, lease_ms=lease_ms)
        return [_delivery(message) for message in received]

    def commit(self, delivery: RmqDelivery) -> Settled:
        """The message is done with. `gone`: its time was over, and it comes (or came) again."""
        return self._client.ack(delivery.message)[0]

    def roll_back(self, delivery: RmqDelivery) -> RolledBack:
        """The message failed: it comes again at once, or is dead after its last retry.

        It names its delivery, so it does nothing to a later one, nor to a newer send of the body.
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
        """Handle messages one after the other until `stop` is set; answer how many were committed.

        A handler that returns commits, one that raises rolls back (and is logged). `batch` messages
        are taken at a time; those whose time is over before their turn are left alone, since they
        come again. What has not had its turn when this ends is given back. Run it in several
        threads to handle several messages at once. While the broker is away it tries again, up to 5
        s apart. TypeError for a handler that cannot be called: each message would die of it.
        """
        if not callable(handle):
            raise TypeError(f"a handler is called with a delivery; {handle!r} cannot be")
        stopped = stop or threading.Event()
        committed, pause_s = 0, 0.1
        while not stopped.is_set():
            taken_at = time.monotonic()
            try:
                deliveries = self.prepare(batch, wait_ms=wait_ms)
            except (NotReached, AnswerLost, NotReady) as away:
                logger.warning("no messages of %s for now: %s", self.topic, away)
                stopped.wait(pause_s)
                pause_s = min(2 * pause_s, AWAY_S_MAX)
                continue
            pause_s = 0.1
            committed += self._handle_all(handle, deliveries, taken_at + self.timeout_s, stopped)
        return committed

    def dead_letters(self) -> Iterator[RmqDeadLetter]:
        """Those that failed too often and were not replayed, in the order of their due times."""
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
        """The manual intervention: dead letters live again, now or at a time, with all retries.

        Of each `done`, `too_late` (it lives already, or its body was sent anew and lives as that)
        or `unknown`. A priority message keeps its priority.
        """
        ids = [letter.id for letter in letters]
        if not ids:
            return []
        return self._client.replay(self.topic, ids, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms)

    def limit_rate(self, per_second: float | None, *, burst: int = 1) -> None:
        """Pace the deliveries of the topic, for all its consumers; None ends that."""
        limit = None if per_second is None else {"per_second": per_second, "burst": burst}
        change_topic(self._client, self.topic, rate_limit=limit)

    def depth(self) -> int:
        """How many wait, due or not; those in work do not count."""
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
        """Do it, if the broker can be reached; where not, time gives the message back."""
        try:
            return settle()
        except (NotReached, AnswerLost, NotReady) as away:
            logger.warning("a message of %s could not be settled: %s", self.topic, away)
            return None


def _delivery(message: Message) -> RmqDelivery:
    body = message.body.decode(errors="surrogateescape")
    return RmqDelivery(body, slot_in(message.id), message.attempts, message)
