"""Bindings: which queues are bound to which exchange, known to all processes of a namespace.

The broker has no exchanges. Each binding is a message in the topic `kombu.bindings` that waits: it
is listed, and never received. A binding of a transient queue (exclusive or auto-delete, such as
those of remote control) is due after a minute unless its process renews it, so that dead processes
get no more broadcasts. A binding of a durable queue stays for ten years.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from delaylog.client.errors import NotFound, TooLate
from delaylog.client.surface import QueueClient

TOPIC: Final = "kombu.bindings"
TRANSIENT_MS: Final = 60_000
DURABLE_MS: Final = 3_650 * 86_400_000
FRESH_S: Final = 1.0
"""How long the bindings of an exchange are used again without asking the broker."""


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
        """Bind a queue; a transient one is bound until `forget` or for a minute after `renew`."""
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
        found = [Binding(**json.loads(info.body or b"{}")) for info in listed]
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

    def renew(self) -> None:
        """Keep the transient bindings of this process for another minute."""
        for binding in list(self._renewed.values()):
            self._put(binding)

    def _put(self, binding: Binding) -> None:
        body = {name: getattr(binding, name) for name in Binding.__slots__}
        self._client.send(
            TOPIC,
            json.dumps(body),
            id=binding.id,
            merge="replace",
            tags=[_tag(binding.exchange)],
            delay_ms=TRANSIENT_MS if binding.transient else DURABLE_MS,
            ttl_ms=0,
        )


def _tag(exchange: str) -> str:
    return sha256(exchange.encode()).hexdigest()
