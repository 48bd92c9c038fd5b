"""Bindings: which queues are bound to which exchange, known to all processes of a namespace.

The broker has no exchanges. Each binding is a message in the topic `kombu.bindings`. Its process
renews the binding of a transient queue (exclusive or auto-delete, such as those of remote control);
unless it does, the binding is due after a minute and no longer listed, so that dead processes get
no more broadcasts. A binding of a durable queue is listed until it is removed.

Processes that have transient queues receive the bindings that are due, and send them again: a
durable one as it was, a transient one as in doubt. So living processes have a minute to renew what
became due while the broker was away. Only a binding that is due in doubt ends.

Each transient queue is bound to the default exchange by its name too, as every queue of AMQP is.
When that binding ends, the topic of the queue is dropped with its unread messages. Any sender can
write such a binding, so only topics with names that kombu and Celery make for transient queues are
dropped.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final

from delaylog.client._sync.surface import QueueClient
from delaylog.client.errors import Forbidden, NotFound, TooLate
from delaylog.client.job_systems.tasks import topic_of

log = logging.getLogger("delaylog.job_systems")
TOPIC: Final = "kombu.bindings"
TRANSIENT: Final = timedelta(minutes=1)
"""How long a binding of a transient queue stays without a renewal, and then in doubt."""
DURABLE: Final = timedelta(hours=1)
"""After which a durable binding is sent again. It must be below the horizon of the namespace."""
IN_DOUBT: Final = {"in-doubt": "1"}
"""Headers of a transient binding that was due, and is due a second time unless it is renewed."""
FRESH_S: Final = 1.0
"""How long the bindings of an exchange are used again without asking the broker."""
DUE_MAX: Final = 100
"""Due bindings that are received at once."""
MADE_NAME: Final = re.compile(
    r"(?:.+\.|amq\.gen-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|.+\.pidbox"
)
"""The names that kombu and Celery make for transient queues: of results, events and broadcasts, of
queues without a name, and of remote control and its replies."""
_LIVING: Final = ("waiting", "ready", "leased")


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

    @property
    def is_possible(self) -> bool:
        """Whether kombu makes such bindings: of the default exchange only those of `hold_queue`."""
        return bool(self.exchange) or self == _of_default_exchange(self.queue)


class Bindings:
    """The bindings of one namespace, as one process uses them.

    `tend` runs on the thread of the lease keeper, the others on that of the channel. A renewal that
    meets a removal may make the binding again; a transient one then ends, as nobody renews it.
    """

    def __init__(self, client: QueueClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._read: dict[str, tuple[float, list[Binding]]] = {}
        self._renewed: dict[str, Binding] = {}

    def add(self, binding: Binding) -> None:
        """Bind a queue until `remove`; a transient one is to be renewed each minute."""
        self._put(binding)
        if binding.transient:
            self._renewed[binding.id] = binding
        self._read.pop(binding.exchange, None)

    def of(self, exchange: str) -> list[Binding]:
        """The bindings of an exchange, as they were a second ago at most."""
        at_s, found = self._read.get(exchange, (-math.inf, []))
        if self._clock() - at_s < FRESH_S:
            return found
        found = self._list(_tag(exchange))
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
        for binding in self._list(_queue_tag(queue)):
            self.remove(binding)

    def hold_queue(self, queue: str) -> None:
        """Keep the topic of a transient queue for as long as a process that holds it renews it."""
        self.add(_of_default_exchange(queue))

    def leave_queue(self, queue: str) -> None:
        """Hold a queue no longer. What is still sent to it is removed two minutes later."""
        self._renewed.pop(_of_default_exchange(queue).id, None)

    def tend(self) -> None:
        """Renew what this process holds and what is durable; remove what nobody renews."""
        self.renew()
        # A process without transient queues, such as one that only sends tasks, needs no right to
        # do it.
        if self._renewed:
            self._receive_due()

    def renew(self) -> None:
        """Keep the transient bindings of this process for another minute."""
        for binding in list(self._renewed.values()):
            self._put(binding)

    def _receive_due(self) -> None:
        for message in self._client.receive(TOPIC, max=DUE_MAX):
            binding = _binding_in(message.body)
            if binding is None or message.id != binding.id or not binding.is_possible:
                self._client.reject(message, reason="this is no binding of kombu")
                continue
            if not binding.transient:
                self._put(binding)
            elif dict(message.headers) != IN_DOUBT:
                self._put(binding, IN_DOUBT)
            elif not binding.exchange:
                self._drop_queue(binding.queue)
            # After the binding was sent again, so that it is listed all the time.
            self._client.ack(message)

    def _drop_queue(self, queue: str) -> None:
        if MADE_NAME.fullmatch(queue) is None:
            log.info("queue %s, which nobody holds, stays: a program has named it", queue)
            return
        try:
            with suppress(NotFound):
                self._client.drop_topic(topic_of(queue), force=True)
        except Forbidden as error:
            log.info("queue %s, which nobody holds, stays: %s", queue, error)

    def _put(self, binding: Binding, headers: Mapping[str, str] | None = None) -> None:
        body = {name: getattr(binding, name) for name in Binding.__slots__}
        self._client.send(
            TOPIC,
            json.dumps(body),
            id=binding.id,
            merge="replace",
            headers=headers,
            tags=[_tag(binding.exchange), _queue_tag(binding.queue)],
            delay=TRANSIENT if binding.transient else DURABLE,
        )

    def _list(self, tag: str) -> list[Binding]:
        """The bindings with a tag, each once. A transient one that is due is left out."""
        found: dict[Binding, None] = {}
        for info in self._client.browse(TOPIC, state=_LIVING, tag=tag, bodies=True):
            binding = _binding_in(info.body or b"")
            if binding is not None and (info.state == "waiting" or not binding.transient):
                found[binding] = None
        return list(found)


def _binding_in(body: bytes) -> Binding | None:
    """The binding in a body, or None: other programs may send to the topic too."""
    try:
        binding = Binding(**json.loads(body))
    except (ValueError, TypeError, RecursionError):
        return None
    names = (binding.exchange, binding.routing_key, binding.queue)
    whole = all(map(_is_text, names)) and isinstance(binding.transient, bool)
    return binding if whole else None


def _is_text(name: object) -> bool:
    """Whether a name can be that of a queue: a lone surrogate of JSON has no UTF-8."""
    try:
        return isinstance(name, str) and name.encode() is not None
    except UnicodeEncodeError:
        return False


def _of_default_exchange(queue: str) -> Binding:
    return Binding("", queue, queue, transient=True)


def _tag(exchange: str) -> str:
    return sha256(exchange.encode()).hexdigest()


def _queue_tag(queue: str) -> str:
    # An exchange may have the name of a queue: the prefix tells the tags apart. A tag has at most
    # 64 bytes.
    return "q" + sha256(queue.encode()).hexdigest()[1:]
