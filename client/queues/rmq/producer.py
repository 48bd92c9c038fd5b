"""RmqProducer: sends messages to an RMQ topic.

A send returns once the message is on disk. The broker decides what a repeated body does, also when
two producers send it concurrently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from delaylog.client.models import NewMessage
from delaylog.client.queues.rmq.identity import check_slots, id_of, key_of, slot_of
from delaylog.client.queues.rmq.messages import (
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqMessage,
)
from delaylog.client.queues.rmq.topic import SLOTS, TopicKind, open_rmq_topic
from delaylog.client.surface import QueueClient


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
