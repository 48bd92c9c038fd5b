"""Intake: the messages that one kombu channel holds under lease, and the threads that fetch them.

Each consumed queue has a thread that waits for messages in long polls. It asks for as many as the
channel may hold, which is its prefetch count; without a count, it reads ten ahead of the
application. Several queues share that room: what arrives when the room is used up is returned.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from queue import SimpleQueue
from typing import Final

from delaylog.client._sync.message import Message
from delaylog.client._sync.surface import QueueClient
from delaylog.client.errors import ClientError, QuotaExceeded
from delaylog.client.job_systems.leases import LeaseKeeper
from delaylog.client.job_systems.tasks import topic_of

log = logging.getLogger("delaylog.job_systems")
WAIT: Final = timedelta(seconds=1)
"""Wait of one poll, and so the longest time that a closing connection waits for it."""
READ_AHEAD: Final = 10
RECEIVE_MAX: Final = 1_000
PAUSE_S: Final = 0.5
"""Between polls that fail or exceed a quota."""
PIPE_BYTES: Final = 65_536


@dataclass(slots=True)
class Held:
    """A message under lease, and whether the application has it: from its consumer or by a poll.

    `failed`: its consumer has raised an error.
    """

    message: Message
    queue: str
    delivered: bool = False
    polled: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a poll found: a message, by its receipt, or an error."""

    intake: Intake
    queue: str
    receipt: str = ""
    error: ClientError | None = None


class Inbox:
    """The arrivals of all channels of a connection. A pipe wakes the event loop, if one waits."""

    def __init__(self) -> None:
        self._arrivals: SimpleQueue[Arrival] = SimpleQueue()
        self._lock = threading.Lock()
        self._ends: tuple[int, int] | None = None

    def put(self, arrival: Arrival) -> None:
        """Add an arrival. Any thread may."""
        self._arrivals.put(arrival)
        with self._lock:
            if self._ends is not None:
                with suppress(BlockingIOError):
                    os.write(self._ends[1], b"!")

    def get(self, timeout_s: float | None = None) -> Arrival:
        """The next arrival. Raises queue.Empty after the timeout."""
        return self._arrivals.get(timeout=timeout_s)

    def descriptor(self) -> int:
        """What becomes readable when there are arrivals; call `seen` then."""
        with self._lock:
            if self._ends is None:
                self._ends = os.pipe()
                for end in self._ends:
                    os.set_blocking(end, False)
                if not self._arrivals.empty():
                    os.write(self._ends[1], b"!")
            return self._ends[0]

    def seen(self) -> None:
        """The event loop takes the arrivals now."""
        if self._ends is not None:
            with suppress(BlockingIOError):
                os.read(self._ends[0], PIPE_BYTES)

    def close(self) -> int | None:
        """Close the pipe and return its descriptor, or None if there was none."""
        with self._lock:
            ends, self._ends = self._ends, None
        if ends is None:
            return None
        for end in ends:
            os.close(end)
        return ends[0]


class Intake:
    """The messages of one channel. Any thread may use it."""

    def __init__(self, client: QueueClient, keeper: LeaseKeeper, inbox: Inbox) -> None:
        self._client = client
        self._keeper = keeper
        self._inbox = inbox
        self._prefetch = 0
        self._held: dict[str, Held] = {}
        self._undelivered = 0
        self._consumed: set[str] = set()
        self._pollers: dict[str, threading.Thread] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._failing = False

    @property
    def is_idle(self) -> bool:
        """Whether it is closed and its threads have ended."""
        return self._closing.is_set() and not self._pollers

    def limit(self, prefetch: int) -> None:
        """Hold at most this many messages; 0: any number."""
        with self._changed:
            self._prefetch = prefetch
            self._changed.notify_all()

    def consume(self, queue: str) -> None:
        """Begin to fetch the messages of a queue."""
        with self._changed:
            # A thread whose last poll is still under way goes on.
            if queue not in self._pollers:
                thread = threading.Thread(
                    target=self._poll, args=(queue,), name=f"delaylog poll {queue}", daemon=True
                )
                thread.start()
                self._pollers[queue] = thread
            self._consumed.add(queue)

    def cancel(self, queue: str) -> None:
        """Stop fetching, and return the messages of the queue that the application has not got."""
        with self._changed:
            self._consumed.discard(queue)
            receipts = [
                receipt
                for receipt, held in self._held.items()
                if held.queue == queue and not held.delivered
            ]
            self._changed.notify_all()
        self.release(receipts)

    def fetch_one(self, queue: str) -> Message | None:
        """Receive one message that is ready now, for the application."""
        for message in self._client.receive(topic_of(queue), lease=self._keeper.lease):
            self._keeper.hold([message])
            with self._changed:
                self._held[message.receipt] = Held(message, queue, delivered=True, polled=True)
            return message
        return None

    def deliver(self, receipt: str) -> Message | None:
        """Give a message to the application; None if it was returned meanwhile."""
        with self._changed:
            held = self._held.get(receipt)
            if held is None or held.delivered:
                return None
            held.delivered = True
            self._undelivered -= 1
            self._changed.notify_all()
            return held.message

    def take_error(self, error: ClientError) -> ClientError:
        """The error of an arrival. Until it is taken, further errors are not reported."""
        self._failing = False
        return error

    def ack(self, receipt: str) -> None:
        """End a message as done. One that is not held was settled before."""
        for message in self._taken([receipt]):
            self._keeper.ack(message)

    def requeue(self, receipt: str) -> None:
        """Return a message that the application has got. One that is not held was settled before.

        A message that it has polled was only looked at: it returns at once. A message that its
        consumer has got was begun: the attempt counts, and it returns after its backoff.
        """
        held = self._held.get(receipt)
        if held is not None and held.polled:
            self.release([receipt])
            return
        for message in self._taken([receipt]):
            self._keeper.nack(message)

    def mark_failed(self, receipt: str) -> None:
        """Count the attempt when the message is returned with all others."""
        held = self._held.get(receipt)
        if held is not None:
            held.failed = True

    def reject(self, receipt: str, reason: str | None = None) -> None:
        """Make a message a dead letter. One that is not held was settled before."""
        for message in self._taken([receipt]):
            self._keeper.reject(message, reason)

    def release(self, receipts: Iterable[str]) -> None:
        """Return messages for immediate delivery, without counting the attempt."""
        self._keeper.release(self._taken(receipts))

    def release_all(self) -> None:
        """Return every message, of the application too.

        The attempts of those whose consumer failed count.
        """
        held = dict(self._held)
        for message in self._taken(receipt for receipt, each in held.items() if each.failed):
            try:
                self._keeper.nack(message)
            except ClientError as error:
                log.warning("message %s returns when its lease ends: %s", message.id, error)
        self.release(held)

    def close(self) -> None:
        """Stop fetching and return every message. `join` waits for the polls under way."""
        self._closing.set()
        with self._changed:
            self._consumed.clear()
            self._changed.notify_all()
        self.release_all()

    def join(self, timeout_s: float) -> None:
        """Wait until the polls under way have returned what they found."""
        for thread in list(self._pollers.values()):
            thread.join(timeout_s)

    def _taken(self, receipts: Iterable[str]) -> list[Message]:
        found: list[Message] = []
        with self._changed:
            for receipt in receipts:
                held = self._held.pop(receipt, None)
                if held is not None:
                    self._undelivered -= not held.delivered
                    found.append(held.message)
            self._changed.notify_all()
        return found

    def _poll(self, queue: str) -> None:
        topic = topic_of(queue)
        while room := self._wait_for_room(queue):
            try:
                found = self._client.receive(topic, max=room, wait=WAIT, lease=self._keeper.lease)
            except QuotaExceeded:
                self._closing.wait(PAUSE_S)
            except ClientError as error:
                if not self._failing and not self._closing.is_set():
                    self._failing = True
                    self._inbox.put(Arrival(self, queue, error=error))
                self._closing.wait(PAUSE_S)
            else:
                self._arrived(queue, found)

    def _wait_for_room(self, queue: str) -> int:
        """How many messages may be asked for; 0 when the queue is not consumed any more."""
        with self._changed:
            while queue in self._consumed:
                if (room := self._room()) > 0:
                    return min(room, RECEIVE_MAX)
                self._changed.wait()
            del self._pollers[queue]
            return 0

    def _room(self) -> int:
        if self._prefetch:
            return self._prefetch - len(self._held)
        return READ_AHEAD - self._undelivered

    def _arrived(self, queue: str, found: list[Message]) -> None:
        with self._changed:
            room = max(0, self._room()) if queue in self._consumed else 0
            kept = found[:room]
            self._keeper.hold(kept)
            for message in kept:
                self._held[message.receipt] = Held(message, queue)
                self._inbox.put(Arrival(self, queue, message.receipt))
            self._undelivered += len(kept)
        self._keeper.release(found[room:])
