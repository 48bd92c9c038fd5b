"""RmqProducer: messages into an RMQ topic.

The one rule: a message is answered once it is on disk, and from then on the broker alone decides
what a repeated body does, also when two producers send it in the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from delaylog.client.models import NewMessage
from delaylog.client.queues.port import QueuePort
from delaylog.client.queues.rmq.identity import check_slots, id_of, key_of, slot_of
from delaylog.client.queues.rmq.messages import (
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqMessage,
)
from delaylog.client.queues.rmq.topic import SLOTS, TopicKind, open_rmq_topic


class RmqProducer:
    """Sends to one topic, `RmqProducer(client, "orders", slots=8).send(message)`.

    The topic is made with the first message, for its kind, or at once where `kind` is given; a
    topic that is there with other slots or of another kind is refused (`TopicMismatch`).
    `rate_limit` (`{"per_second": …, "burst": …}`) paces the deliveries of a topic that is made
    here.

    What a repeated body does while the message lives:

    - **RangeMerge** merges into it: the first time stays, also while it is overdue or waits for a
      retry.
    - **Priority** and **FixedTime** replace it: the new priority or time counts, and all
      retries are there again.
    - While a consumer works on it, it becomes a new message of its own in all three kinds, which is
      handed out after the one in work has ended. So a change during the work is never lost.
    """

    def __init__(
        self,
        client: QueuePort,
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
        """What the topic carries, None before the first message."""
        return self._kind

    def slot_of(self, message: RmqMessage) -> int:
        """Where a message belongs: CRC32 of the slot basis or the body, modulo the slots."""
        return slot_of(message, self.slots)

    def send(self, message: RmqMessage) -> bool:
        """Put a message in. True if it is a new one, False if it was merged into one that lives.

        TypeError for a message of another kind than the topic's. A fixed time that is past by the
        broker's clock means now: a client's own clock is not asked.
        """
        return self.send_many([message])[0]

    def send_many(self, messages: Iterable[RmqMessage]) -> list[bool]:
        """As `send` one after the other, in few requests."""
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
        delay_ms, deliver_at_ms, priority = None, None, None
        if isinstance(message, RangeMergeMessage):
            delay_ms = message.time_range_ms
        elif isinstance(message, FixedTimeMessage):
            deliver_at_ms = message.fixed_time_ms
        else:
            assert isinstance(message, PriorityMessage), "there are three kinds"
            priority = message.priority
        return NewMessage(
            message.body,
            delay_ms=delay_ms,
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
