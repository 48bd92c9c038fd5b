"""Bindings: which queues are bound to which exchange, known to all processes of a namespace.

The broker has no exchanges. Each binding is a message in the topic `kombu.bindings`, and is listed
while it waits. A binding of a transient queue (exclusive or auto-delete, such as those of remote
control) is due after a minute unless its process renews it, so that dead processes get no more
broadcasts. A binding of a durable queue stays for ten years.

Each transient queue is bound to the default exchange by its name too, as every queue of AMQP is.
Another process that has transient queues receives that binding when it is due, and removes the
topic of the queue with what nobody has read.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from delaylog.client.errors import Forbidden, NotFound, TooLate
from delaylog.client.job_systems.topics import topic_of
from delaylog.client.models import MessageInfo
from delaylog.client.surface import QueueClient

log = logging.getLogger("delaylog.job_systems")
TOPIC: Final = "kombu.bindings"
TRANSIENT_MS: Final = 60_000
DURABLE_MS: Final = 3_650 * 86_400_000
FRESH_S: Final = 1.0
"""How long the bindings of an exchange are used again without asking the broker."""
DUE_MAX: Final = 100
"""Bindings of dead processes that are received at once."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One queue, bound to one exchange by one routing key or pattern."""

    exchange: str
    routing_key: str
    queue: str
    transient: bool

    @property
    def id(self) -> str:
        """The id of its message."""
        names = json.dumps([self.exchange, self.routing_key, self.queue])
        return sha256(names.encode()).hexdigest()


class Bindings:
    """The bindings of one namespace, as one process uses them."""

    def __init__(self, client: QueueClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._read: dict[str, tuple[float, list[Binding]]] = {}
        self._renewed: dict[str, Binding] = {}

    def add(self, binding: Binding) -> None:
        """Bind a queue; a transient one is bound until `remove`, or a minute after `renew`."""
        self._put(binding)
        if binding.transient:
            self._renewed[binding.id] = binding
        self._read.pop(binding.exchange, None)

    def of(self, exchange: str) -> list[Binding]:
        """The bindings of an exchange, as they were a second ago at most."""
        at_s, found = self._read.get(exchange, (-math.inf, []))
        if self._clock() - at_s < FRESH_S:
            return found
        listed = self._client.browse(TOPIC, state="waiting", tag=_tag(exchange), bodies=True)
        found = _bindings_in(listed)
        self._read[exchange] = self._clock(), found
        return found

    def reread(self, exchange: str) -> None:
        """Ask the broker again when the bindings of the exchange are next needed."""
        self._read.pop(exchange, None)

    def remove(self, binding: Binding) -> None:
        """Unbind a queue."""
        self._renewed.pop(binding.id, None)
        self._read.pop(binding.exchange, None)
        try:
            self._client.cancel(TOPIC, binding.id)
        except (NotFound, TooLate):
            return

    def remove_queue(self, queue: str) -> None:
        """Unbind a queue from all exchanges, whichever process has bound it."""
        listed = self._client.browse(TOPIC, state="waiting", tag=_queue_tag(queue), bodies=True)
        for binding in _bindings_in(listed):
            self.remove(binding)

    def hold_queue(self, queue: str) -> None:
        """Keep the topic of a transient queue for as long as a process that holds it renews it."""
        self.add(_of_default_exchange(queue))

    def leave_queue(self, queue: str) -> None:
        """Hold a queue no longer. What is still sent to it is removed a minute later."""
        self._renewed.pop(_of_default_exchange(queue).id, None)

    def tend(self) -> None:
        """Renew what this process holds, and remove the transient queues that nobody renews."""
        self.renew()
        # A process without transient queues, such as one that only sends tasks, needs no right to
        # do it.
        if self._renewed:
            self._remove_dead_queues()

    def renew(self) -> None:
        """Keep the transient bindings of this process for another minute."""
        for binding in list(self._renewed.values()):
            self._put(binding)

    def _remove_dead_queues(self) -> None:
        for message in self._client.receive(TOPIC, max=DUE_MAX):
            binding = _binding_in(message.body)
            if binding is None:
                self._client.reject(message, reason="this is no binding of kombu")
                continue
            if not binding.exchange:
                try:
                    with suppress(NotFound):
                        self._client.drop_topic(topic_of(binding.queue), force=True)
                except Forbidden as error:
                    log.info("queue %s, which nobody holds, stays: %s", binding.queue, error)
            self._client.ack(message)

    def _put(self, binding: Binding) -> None:
        body = {name: getattr(binding, name) for name in Binding.__slots__}
        self._client.send(
            TOPIC,
            json.dumps(body),
            id=binding.id,
            merge="replace",
            tags=[_tag(binding.exchange), _queue_tag(binding.queue)],
            delay_ms=TRANSIENT_MS if binding.transient else DURABLE_MS,
        )


def _bindings_in(listed: Iterable[MessageInfo]) -> list[Binding]:
    found = (_binding_in(info.body or b"") for info in listed)
    return [binding for binding in found if binding is not None]


def _binding_in(body: bytes) -> Binding | None:
    """The binding in a body, or None: other programs may send to the topic too."""
    try:
        binding = Binding(**json.loads(body))
    except (ValueError, TypeError, RecursionError):
        return None
    names = (binding.exchange, binding.routing_key, binding.queue)
    whole = all(isinstance(name, str) for name in names) and isinstance(binding.transient, bool)
    return binding if whole else None


def _of_default_exchange(queue: str) -> Binding:
    return Binding("", queue, queue, transient=True)


def _tag(exchange: str) -> str:
    return sha256(exchange.encode()).hexdigest()


def _queue_tag(queue: str) -> str:
    # An exchange may have the name of a queue: the prefix tells the tags apart. A tag has at most
    # 64 bytes.
    return "q" + sha256(queue.encode()).hexdigest()[1:]
