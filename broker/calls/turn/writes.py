"""The calls that change messages, for every carrier: send, settle, change.

The engine checks and decides each call without yielding to the loop. The call returns when its
frames are appended to the log, before they are synced. The carrier then waits until they are as
durable as its caller asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from delaylog.broker.calls.turn.askers import Part, batch_of
from delaylog.broker.engine import changes
from delaylog.broker.engine.changes import ControlResult, GroupedResult, in_groups
from delaylog.broker.engine.deliver import settlements
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import SendResult, Settlement, Topic
from delaylog.broker.engine.send.sends import send, send_few, topic_of_send
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.host.node import Node
from delaylog.broker.host.waiters import TopicKey
from delaylog.storage.layout import Int64Array
from delaylog.storage.messages.batch import MessageBatch, Single
from delaylog.storage.messages.rows import FEW_ROWS_MAX

# --------------------------------------------------------------------------- send


def send_batch(node: Node, key: TopicKey, batch: MessageBatch, now_ms: int) -> SendResult:
    """Send a batch to a topic (namespace, name), which is created if it does not exist.

    Raises EngineError or MemberError; then nothing is sent and no topic created.
    """
    state, free_bytes = node.engine.state, node.free_bytes()
    topic = topic_of_send(state, key, batch, now_ms, free_bytes=free_bytes)
    return send(state, topic, batch, now_ms, free_bytes=free_bytes)


def send_parts(node: Node, key: TopicKey, parts: Sequence[Part]) -> SendResult:
    """Send alike parts (see `batch_of`) as one batch."""
    now_ms = node.clock.now_ms()
    if len(parts) <= FEW_ROWS_MAX and isinstance(parts[0], Single):
        state, singles = node.engine.state, cast("Sequence[Single]", parts)
        sent = send_few(state, key, singles, now_ms, free_bytes=node.free_bytes())
        if sent is not None:
            return sent
    return send_batch(node, key, batch_of(parts, now_ms), now_ms)


# --------------------------------------------------------------------------- settle


class Settling(NamedTuple):
    """How messages under lease are settled."""

    verb: str
    """ack, nack, reject, extend or begin."""
    delay_ms: int | None = None
    """nack: the wait before the retry; None: the backoff."""
    lease_ms: int | None = None
    """extend, begin: the new length of the lease, from now; None: the topic's `lease_ms`."""
    reason: str = ""
    """nack, reject: why the consumer failed, in its words."""


def settle_each(
    node: Node, topic: Topic, wanted: Settling, receipts: Sequence[Receipts]
) -> list[Settlement]:
    """Settle messages of several leases; an outcome for each."""
    now_ms = node.clock.now_ms()
    if wanted.verb == "ack":
        return settlements.ack_each(node.engine.state, topic, receipts, now_ms)
    return [_settle_one(node, topic, wanted, each, now_ms) for each in receipts]


def _settle_one(
    node: Node, topic: Topic, wanted: Settling, receipts: Receipts, now_ms: int
) -> Settlement:
    state = node.engine.state
    if wanted.verb == "nack":
        return settlements.nack(
            state, topic, receipts, now_ms, delay_ms=wanted.delay_ms, reason=wanted.reason
        )
    if wanted.verb == "reject":
        return settlements.reject(state, topic, receipts, now_ms, reason=wanted.reason)
    lease_ms = topic.settings.lease_ms if wanted.lease_ms is None else wanted.lease_ms
    if wanted.verb == "begin":
        return settlements.begin(state, topic, receipts, now_ms, lease_ms=lease_ms)
    return settlements.extend(state, topic, receipts, now_ms, lease_ms=lease_ms)


# --------------------------------------------------------------------------- change


@dataclass(frozen=True, slots=True)
class Change:
    """A change of messages by id, ref or filter: cancel, reschedule or replay."""

    action: str
    """cancel, reschedule or replay."""
    deliver_at_ms: Int64Array | int | None = None
    """The new due time: one for all messages, or one for each."""
    priority: int | None = None
    """The new priority, of a reschedule."""
    force: bool = False
    """Cancel leased messages and dead letters too."""
    untried: bool = False
    """Cancel or reschedule only messages at which no attempt has begun."""


def change(
    node: Node, topic: Topic, find: Callable[[Group], FoundMessages], wanted: Change
) -> GroupedResult:
    """Change messages in each group where that is possible; `find` returns them in a group."""
    state, now_ms, due = node.engine.state, node.clock.now_ms(), wanted.deliver_at_ms

    def act(found: FoundMessages) -> ControlResult:
        if wanted.action == "cancel":
            force = wanted.force
            return changes.cancel(
                state, topic, found, now_ms, force=force, dead=force, untried=wanted.untried
            )
        if wanted.action == "replay":
            return changes.replay(state, topic, found, now_ms, deliver_at_ms=due)
        return changes.reschedule(
            state,
            topic,
            found,
            now_ms,
            deliver_at_ms=due,
            priority=wanted.priority,
            untried=wanted.untried,
        )

    return in_groups(topic, find, act)
