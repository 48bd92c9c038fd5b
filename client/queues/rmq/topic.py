"""RMQ topics on the native API: the settings of each kind, created or compared on opening.

Slots and kind of a topic never change. Opening a topic with other slots or another kind raises an
error and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from delaylog.client.models import TopicSettings
from delaylog.client.queues.opening import NO_BACKOFF, open_topic
from delaylog.client.queues.rmq.identity import check_slots
from delaylog.client.queues.rmq.messages import (
    RETRIES_MAX,
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqMessage,
)
from delaylog.client.surface import QueueClient

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
