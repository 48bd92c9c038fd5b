"""A dramatiq broker on the delay log: queues are topics, delays are due times, acks are leases.

A delayed message waits in the broker, so there are no delay queues and no worker holds it. A
message that dramatiq rejects, because its retries are used up or its actor is unknown, is a dead
letter of its topic.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final

from delaylog.extras import absent

try:
    import dramatiq
    from dramatiq.errors import BrokerConnectionError, ConnectionClosed, DecodeError, QueueNotFound
except ImportError as error:
    raise absent(error, "delaylog.client.job_systems.dramatiq_broker", "dramatiq") from None

from delaylog.client._sync.client import Client
from delaylog.client._sync.message import Message
from delaylog.client.errors import AWAY, NotFound
from delaylog.client.job_systems.leases import LEASE, LeaseKeeper
from delaylog.client.job_systems.tasks import (
    cancel_task,
    declare_topic,
    reason_of_refusal,
    send_task,
    tags_of,
    topic_of,
    whole_ms,
)
from delaylog.client.keywords import SendKeywords
from delaylog.client.models import Changed
from delaylog.client.wire.times import span_of

log = logging.getLogger("delaylog.job_systems")
PRIORITY_OPTION: Final = "broker_priority"
"""The option of a message that dramatiq's RabbitMQ broker has too."""
RECEIVE_MAX: Final = 1_000
JOIN_INTERVAL_MS: Final = 100


class DelaylogBroker(dramatiq.Broker):
    """A broker that stores messages in the delay log."""

    def __init__(
        self, *endpoints: str, middleware: Any = None, lease: timedelta = LEASE, **options: Any
    ) -> None:
        """Endpoints and options are those of `Client`; without endpoints DELAYLOG_URL is used.

        `lease`: how long after the death of a worker its messages are delivered again. No call
        is made before the first message is sent or consumed.
        """
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self.sdk = Client(*endpoints, **options)
        self.keeper = LeaseKeeper(self.sdk, lease)
        self._created: set[str] = set()

    def close(self) -> None:
        """Close the client. Messages that were received and not settled keep their leases."""
        self.keeper.close()
        self.sdk.close()

    def declare_queue(self, queue_name: str) -> None:
        """Make a queue known to this process. Its topic is created when it is first used."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """The queues that were declared."""
        return self.queues.copy()

    def enqueue(self, message: Any, *, delay: float | None = None) -> Any:
        """Send a message that is due `delay` ms after its arrival, rounded up, or now.

        Each call stores a message, also with an id that was sent before. Raises ConnectionClosed if
        the broker does not answer. If `message` is the one that a worker runs, this is its retry:
        if it cannot be stored, the message is not acked.
        """
        try:
            return self._enqueue(message.copy(), delay)
        except Exception as error:
            if isinstance(message, _Proxy):
                message.keep(error)
            raise

    def _enqueue(self, message: Any, delay: float | None) -> Any:
        self.emit_before("enqueue", message, delay)
        fields = SendKeywords(
            tags=tags_of(message.actor_name),
            priority=message.options.get(PRIORITY_OPTION),
            delay=None if delay is None else span_of(whole_ms(delay)),
        )
        with as_dramatiq():
            self.create_topic(message.queue_name)
            topic = topic_of(message.queue_name)
            send_task(self.sdk, topic, message.encode(), fields, message.message_id)
        self.emit_after("enqueue", message, delay)
        return message

    def cancel(self, message_id: str, queue_name: str = "default") -> Changed:
        """Cancel every send of a message that no worker has received.

        Raises TooLate if workers have received all of them, and NotFound if there is none.
        """
        return cancel_task(self.sdk, topic_of(queue_name), message_id)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5_000) -> _Consumer:
        """An iterator over the messages of a queue that are due. Raises QueueNotFound.

        It holds `prefetch` messages at most, and waits `timeout` ms for the next one.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        with as_dramatiq():
            self.create_topic(queue_name)
        return _Consumer(self, queue_name, prefetch, timeout)

    def flush(self, queue_name: str) -> None:
        """End the messages of a queue that no worker has received."""
        with as_dramatiq():
            try:
                self.sdk.purge(topic_of(queue_name))
            except NotFound:
                return

    def flush_all(self) -> None:
        """End the messages of all declared queues that no worker has received."""
        for queue_name in self.get_declared_queues():
            self.flush(queue_name)

    def join(
        self, queue_name: str, *, interval: int = JOIN_INTERVAL_MS, timeout: int | None = None
    ) -> None:
        """Wait until every message of a queue has ended, those included that are due later.

        Looks each `interval` ms. Raises QueueJoinTimeout after `timeout` ms.
        """
        end_s = None if timeout is None else time.monotonic() + timeout / 1000
        while self._living(queue_name):
            if end_s is not None and time.monotonic() >= end_s:
                raise dramatiq.QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)

    def create_topic(self, queue_name: str) -> None:
        """Create the topic of a queue, unless it exists."""
        if queue_name not in self._created:
            declare_topic(self.sdk, topic_of(queue_name), for_s=self.sdk.timeout_s)
            self._created.add(queue_name)

    def _living(self, queue_name: str) -> int:
        with as_dramatiq():
            counts = self.sdk.stats(topic_of(queue_name)).counts
        return counts.waiting + counts.ready + counts.leased


class _NotOfDramatiq(Exception):
    """A body is no message of dramatiq."""


def _decoded(body: bytes) -> Any:
    """The message in a body. Other programs send to queues too, so its members are checked."""
    try:
        message = dramatiq.Message.decode(body)
    except DecodeError as error:
        raise _NotOfDramatiq(str(error)) from error
    names = (message.queue_name, message.actor_name, message.message_id)
    options: Any = message.options
    if not all(isinstance(name, str) for name in names) or not isinstance(options, dict):
        raise _NotOfDramatiq("a member has another type")
    if not isinstance(options.get("eta", 0), int | float):
        raise _NotOfDramatiq("the eta is no number")
    return message


class _Proxy(dramatiq.MessageProxy):
    """A message of dramatiq, and the message under lease that it came in."""

    def __init__(self, message: Any, received: Message) -> None:
        super().__init__(message)
        self.received = received
        self.refusal: str | None = None
        """Why its retry was refused."""
        self.leave = False
        """The broker did not answer when the retry was sent: the message keeps its lease."""

    def keep(self, error: Exception) -> None:
        """Do not ack the message: its retry was not stored because of `error`."""
        if isinstance(error, BrokerConnectionError):
            self.leave = True
        else:
            self.refusal = reason_of_refusal(error)


class _Consumer(dramatiq.Consumer):
    """Iterated by one thread; any thread may settle."""

    def __init__(
        self, broker: DelaylogBroker, queue_name: str, prefetch: int, timeout_ms: int
    ) -> None:
        self._broker = broker
        self._queue_name = queue_name
        self._prefetch = prefetch
        self._timeout_ms = timeout_ms
        self._fetched: deque[Message] = deque()
        self._held: set[str] = set()
        """Receipts of messages that count as prefetched."""
        self._freed = threading.Condition()

    def __next__(self) -> _Proxy | None:
        """The next message, or None if none came in time."""
        with as_dramatiq():
            if not self._fetched:
                self._fetch()
        if not self._fetched:
            return None
        received = self._fetched.popleft()
        try:
            return _Proxy(_decoded(received.body), received)
        except _NotOfDramatiq:
            log.exception(
                "message %s of topic %s was not sent by dramatiq: it becomes a dead letter",
                received.id,
                received.topic,
            )
            self._free([received])
            with as_dramatiq():
                self._broker.keeper.reject(received)
            return None

    def ack(self, message: Any) -> None:
        """End a message as done. Raises ConnectionClosed; the worker then calls again.

        A message whose retry was refused becomes a dead letter instead. A message whose retry got
        no answer is delivered again when its lease ends.
        """
        keeper = self._broker.keeper
        if message.leave:
            self._settle(message, keeper.leave)
        elif message.refusal is not None:
            self.nack(message)
        else:
            self._settle(message, keeper.ack)

    def nack(self, message: Any) -> None:
        """Make a message a dead letter. Raises ConnectionClosed, as `ack` does."""
        self._settle(message, partial(self._broker.keeper.reject, reason=message.refusal))

    def requeue(self, messages: Iterable[Any]) -> None:
        """Return messages for immediate delivery, without counting the attempt."""
        self._release([message.received for message in messages])

    def close(self) -> None:
        """Return the messages that the worker has not got."""
        self._release(list(self._fetched))
        self._fetched.clear()

    def _fetch(self) -> None:
        with self._freed:
            room = self._prefetch - len(self._held)
            if room <= 0:
                self._freed.wait(self._timeout_ms / 1000)
                return
        keeper = self._broker.keeper
        found = self._broker.sdk.receive(
            topic_of(self._queue_name),
            max=min(room, RECEIVE_MAX),
            wait=span_of(self._timeout_ms),
            lease=keeper.lease,
        )
        keeper.hold(found)
        with self._freed:
            self._held.update(message.receipt for message in found)
        self._fetched.extend(found)

    def _settle(self, message: Any, settle: Callable[[Message], None]) -> None:
        received: Message = message.received
        try:
            with as_dramatiq():
                settle(received)
        except BrokerConnectionError:
            # The worker repeats the call for as long as the broker is away.
            self._broker.keeper.hold([received])
            raise
        finally:
            self._free([received])

    def _release(self, messages: list[Message]) -> None:
        self._free(messages)
        self._broker.keeper.release(messages)

    def _free(self, messages: Iterable[Message]) -> None:
        with self._freed:
            self._held.difference_update(message.receipt for message in messages)
            self._freed.notify_all()


@contextmanager
def as_dramatiq() -> Iterator[None]:
    """Raise ConnectionClosed, which dramatiq knows, when the broker does not answer."""
    try:
        yield
    except AWAY as error:
        raise ConnectionClosed(error) from error


__all__ = ["DelaylogBroker"]
