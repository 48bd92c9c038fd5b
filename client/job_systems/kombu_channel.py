"""The channel of the kombu transport: publishing, consuming, queues and bindings.

Routing (direct, topic and fanout exchanges) is kombu's own, over bindings that all processes share
through the broker. What arrives is held by an intake until it is settled.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.json import dumps, loads

from delaylog.client._sync.message import Message
from delaylog.client.errors import ClientError, NotFound
from delaylog.client.job_systems.kombu_bindings import Binding
from delaylog.client.job_systems.tasks import (
    reason_of_refusal,
    refusal_of,
    send_refused_copy,
    send_task,
    tags_of,
    topic_of,
)
from delaylog.client.keywords import SendKeywords
from delaylog.client.wire.times import span_of

if TYPE_CHECKING:
    from delaylog.client.job_systems.kombu_transport import Transport

# Kombu's messages as messages of a topic, and back.
#
# The body is kombu's message as JSON. What the broker can use is repeated as fields: the task's
# name as tag, the ETA as due time, the priority, and the expiration as ttl. The broker
# waits for an ETA that has a time zone, so the worker finds none in the message. It waits by itself
# for an ETA without one, because only the application knows which zone is meant.

PRIORITY_MAX: Final = 9
"""Of kombu's virtual transports; the least is 0."""


def due_ms(headers: Mapping[str, Any]) -> int | None:
    """The Unix time in ms at which a task is due, or None if the broker shall not wait for it."""
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return None
    try:
        when = datetime.fromisoformat(eta)
    except ValueError:
        # The worker reports it.
        return None
    return None if when.tzinfo is None else max(0, math.ceil(when.timestamp() * 1000))


def fields_of(payload: Mapping[str, Any]) -> SendKeywords:
    """The keywords with which a message of kombu is sent."""
    fields = SendKeywords()
    headers: Mapping[str, Any] = payload.get("headers") or {}
    properties: Mapping[str, Any] = payload["properties"]
    if "task" in headers:
        fields["tags"] = tags_of(headers["task"])
    if (due := due_ms(headers)) is not None:
        fields["deliver_at_ms"] = due
    if priority := priority_of(properties):
        fields["priority"] = priority
    if (expiration := properties.get("expiration")) is not None:
        fields["ttl"] = span_of(int(expiration))
    return fields


def task_id_of(payload: Mapping[str, Any]) -> object:
    """The id of the task in a message of kombu; None for what is no task."""
    headers: Mapping[str, Any] = payload.get("headers") or {}
    return headers.get("id") if "task" in headers else None


def priority_of(properties: Mapping[str, Any]) -> int:
    """The priority, 0 to 9; higher goes first, as with RabbitMQ."""
    priority = properties.get("priority")
    return min(max(priority, 0), PRIORITY_MAX) if isinstance(priority, int) else 0


def body_of(payload: Mapping[str, Any]) -> str:
    """The body with which a message of kombu is sent."""
    text: str = dumps(payload)
    return text


def payload_of(message: Message) -> dict[str, Any]:
    """The message of kombu that was sent. Its delivery tag is new with each delivery."""
    payload: dict[str, Any] = loads(message.text)
    properties = payload["properties"]
    properties["delivery_tag"] = message.receipt
    properties.setdefault("delivery_info", {})["redelivered"] = message.attempts > 1
    headers = payload.get("headers") or {}
    if due_ms(headers) is not None:
        headers["eta"] = None
    return payload


log = logging.getLogger("delaylog.job_systems")
BROADCAST_TTL: Final = timedelta(minutes=5)
"""The ttl of messages to transient queues that have no expiration: the consumer may be gone."""


class QoS(virtual.QoS):
    """The prefetch count of a channel, and the settling of its messages by delivery tag."""

    def ack(self, delivery_tag: str) -> None:
        """End a message as done."""
        super().ack(delivery_tag)
        self.channel.intake.ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Return a message, or make it a dead letter.

        Celery requeues only tasks that it has begun: the child process was lost, the time limit was
        exceeded, or the task raised Reject. Tasks that were only fetched are returned by
        `restore_unacked` when a worker stops. The result backend `rpc` polls with `basic_get`, and
        requeues a result that is not final.
        """
        super().ack(delivery_tag)
        if requeue:
            self.channel.intake.requeue(delivery_tag)
        else:
            self.channel.intake.reject(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Return all messages of the channel: it is closed, or recovers (`basic_recover`).

        Their attempts do not count. A message that cannot be returned keeps its lease.
        """
        self._delivered.clear()
        self.channel.intake.release_all()
        return []


class Channel(virtual.Channel):
    """A channel: queues, bindings, and one intake."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.sdk = connection.sdk
        self.intake = connection.new_intake()
        self._transport = connection
        self._handlers: dict[str, Callable[[Any], Any]] = {}
        self._no_ack: set[str] = set()

    def close(self) -> None:
        """Stop consuming and return unacknowledged messages."""
        super().close()
        self.intake.close()

    # Publishing

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Keep text as text, so that it can be read in the broker; bytes as `encoding` says."""
        if isinstance(body, str):
            return body, "utf-8"
        encoded: tuple[Any, str | None] = super().encode_body(body, encoding)
        return encoded

    def _put(
        self, queue: str, message: dict[str, Any], refusal: Exception | None = None, **_: Any
    ) -> None:
        fields = fields_of(message)
        if queue in self._transport.transient:
            fields.setdefault("ttl", BROADCAST_TTL)
        else:
            self._transport.declare_queue(queue)
        if refusal is not None:
            send_refused_copy(self.sdk, topic_of(queue), body_of(message), fields, refusal)
        else:
            send_task(self.sdk, topic_of(queue), body_of(message), fields, task_id_of(message))

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str | None = None, **_: Any
    ) -> None:
        for queue in self._lookup(exchange, routing_key or ""):
            self._put(queue, message)

    # Consuming

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        """Limit how many messages the channel holds."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.intake.limit(prefetch_count)

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        """Begin to consume a queue."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self._handlers[queue] = self.connection._callbacks[queue]
        (self._no_ack.add if no_ack else self._no_ack.discard)(queue)
        self.intake.consume(queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self._handlers.pop(queue, None)
            self.intake.cancel(queue)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Return a message that is ready now, or None."""
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.intake.ack(message.delivery_tag)
        return message

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        message = self.intake.fetch_one(queue)
        payload = self._payload_of(message) if message is not None else None
        if payload is None:
            raise Empty
        return payload

    def deliver(self, queue: str, message: Message) -> bool:
        """Hand a message to the consumer of its queue.

        False if the queue has no consumer any more, or if the message was rejected. Raises
        what the consumer raises. Its attempt then counts, even if it is only returned: a message
        that ends each worker becomes a dead letter.
        """
        handler = self._handlers.get(queue)
        if handler is None:
            self.intake.release([message.receipt])
            return False
        payload = self._payload_of(message)
        if payload is None:
            return False
        if queue in self._no_ack:
            self.intake.ack(message.receipt)
        try:
            handler(payload)
        except ClientError:
            raise
        except Exception:
            self.intake.mark_failed(message.receipt)
            raise
        return True

    def _payload_of(self, message: Message) -> dict[str, Any] | None:
        if (reason := refusal_of(self.sdk, message)) is not None:
            self.intake.reject(message.receipt, reason)
            return None
        try:
            payload = payload_of(message)
            # Kombu does it where an error would end the worker.
            self.decode_body(payload.get("body"), payload["properties"].get("body_encoding"))
            return payload
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            log.exception(
                "message %s of topic %s was not sent by kombu: it becomes a dead letter",
                message.id,
                message.topic,
            )
            self.intake.reject(message.receipt)
            return None

    def give_up(self, message: Any, error: Exception, *, acked: bool) -> None:
        """Make a received task a dead letter, because its retry was refused with `error`.

        A task that is acked by now is sent again, as a copy that its receiver rejects.
        """
        if not acked:
            self.intake.reject(message.delivery_tag, reason_of_refusal(error))
            return
        payload = {**message.serializable(), "body": message.body, "headers": message.headers}
        route = message.delivery_info
        self.basic_publish(payload, route["exchange"], route["routing_key"], refusal=error)

    # Queues and bindings

    def prepare_queue_arguments(self, arguments: Any, **options: Any) -> Any:
        """Arguments under the names that RabbitMQ has for them."""
        return to_rabbitmq_queue_arguments(arguments, **options)

    def _new_queue(
        self,
        queue: str,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if exclusive or auto_delete:
            # The first message creates the topic of the queue. The topic is removed when no process
            # renews its hold on the queue.
            self._transport.transient.add(queue)
            self._transport.bindings.hold_queue(queue)
        if not (exclusive or auto_delete) or "x-max-priority" in (arguments or {}):
            ttl_ms = (arguments or {}).get("x-message-ttl")
            ttl = None if ttl_ms is None else span_of(ttl_ms)
            self._transport.declare_queue(queue, ttl=ttl)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        if queue in self._transport.transient:
            return True
        with suppress(NotFound):
            self.sdk.get_topic(topic_of(queue))
            return True
        return False

    def _size(self, queue: str) -> int:
        """Messages that nobody has received, those included that are due later."""
        counts = self.sdk.stats(topic_of(queue)).counts
        return counts.ready + counts.waiting

    def _purge(self, queue: str) -> int:
        try:
            return self.sdk.purge(topic_of(queue))
        except NotFound:
            return 0

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        """Delete a queue, its messages and its bindings."""
        if if_empty and self._size(queue):
            return
        for exchange, routing_key, _arguments in list(self.state.queue_bindings(queue)):
            self._transport.bindings.remove(self._binding(exchange, routing_key, queue))
        if queue not in self._transport.transient:
            # Other processes may have bound it. A transient queue is bound by its owner only, and
            # one that holds a reply is deleted for each reply: no need to ask the broker.
            self._transport.bindings.remove_queue(queue)
        self.state.queue_bindings_delete(queue)
        with suppress(NotFound):
            self.sdk.drop_topic(topic_of(queue), force=True)
        self._transport.forget_queue(queue)
        self._transport.bindings.leave_queue(queue)

    def _queue_bind(self, exchange: str, routing_key: str, _pattern: Any, queue: str) -> None:
        self._transport.bindings.add(self._binding(exchange, routing_key, queue))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **_: Any,
    ) -> None:
        """Remove one binding of a queue."""
        self.state.binding_delete(queue, exchange, routing_key)
        self._transport.bindings.remove(self._binding(exchange or "amq.direct", routing_key, queue))

    def _binding(self, exchange: str, routing_key: str, queue: str) -> Binding:
        return Binding(exchange, routing_key or "", queue, queue in self._transport.transient)

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        found = super()._lookup(exchange, routing_key, default)
        if not found and exchange and self.typeof(exchange).type == "direct":
            # The queue of a reply may have been bound a moment ago.
            self._transport.bindings.reread(exchange)
            found = super()._lookup(exchange, routing_key, default)
        return found

    def get_table(self, exchange: str) -> list[tuple[str, Any, str]]:
        """The bindings of an exchange: routing key, pattern and queue of each."""
        kind = self.typeof(exchange)
        bindings = self._transport.bindings.of(exchange)
        self._transport.transient.update(each.queue for each in bindings if each.transient)
        return [
            kind.prepare_bind(each.queue, exchange, each.routing_key, None) for each in bindings
        ]
