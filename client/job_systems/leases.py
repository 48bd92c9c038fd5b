"""LeaseKeeper: the messages that a worker of a job system has received and not settled yet.

A thread extends their leases, so a task may run for hours while the lease is short; when the
process dies, its messages are delivered to other workers after `lease`. A message leaves the
keeper before it is settled: if the broker does not answer, its lease ends and it is delivered
again. Job systems know no quotas, so the keeper waits when one is used up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Final

from delaylog.client._sync.message import Message
from delaylog.client._sync.surface import QueueClient
from delaylog.client.errors import ClientError, QuotaExceeded, SettleFailed
from delaylog.client.models import Settled

log = logging.getLogger("delaylog.job_systems")
LEASE: Final = timedelta(seconds=30)
EXTENSIONS_PER_LEASE: Final = 3
"""So that one lost answer does not cost a lease."""
ROUND_S_MAX: Final = 15.0
"""Between rounds of extensions, however long a lease is: the chore has to run too."""
QUOTA_PAUSE_S: Final = 1.0
"""Between tries of a settlement that exceeds a quota, if the broker names no time."""


class LeaseKeeper:
    """Extends the leases of the messages that it holds. Any thread may use it."""

    def __init__(
        self,
        client: QueueClient,
        lease: timedelta = LEASE,
        *,
        chore: Callable[[], None] | None = None,
    ) -> None:
        """`chore` runs with each round of extensions; its errors are logged."""
        self.lease = lease
        self._client = client
        self._chore = chore
        self._held: dict[str, Message] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """How many messages are held."""
        return len(self._held)

    def start(self) -> None:
        """Start the thread, if it does not run. `hold` does it too."""
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                thread = threading.Thread(
                    target=self._run, name="delaylog lease keeper", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    # Who holds a message must not fail. The next one that is held tries again.
                    log.error("leases are not extended for now: %s", error)
                    return
                self._thread = thread

    def hold(self, messages: Iterable[Message]) -> None:
        """Extend the leases of these messages until they are settled."""
        with self._lock:
            self._held.update((message.receipt, message) for message in messages)
        self.start()

    def ack(self, message: Message) -> None:
        """End a message as done. Raises ClientError if the broker does not answer."""
        self._end(message, self._client.ack)

    def nack(self, message: Message) -> None:
        """Return a message after its backoff; a dead letter once `max_retry` is used up.

        Raises ClientError if the broker does not answer.
        """
        self._end(message, self._client.nack)

    def reject(self, message: Message, reason: str | None = None) -> None:
        """Make a message a dead letter. Raises ClientError if the broker does not answer."""
        self._end(message, partial(self._client.reject, reason=reason))

    def leave(self, message: Message) -> None:
        """Stop extending the lease of a message: it is delivered again when the lease ends."""
        self._drop([message])

    def release(self, messages: Iterable[Message]) -> None:
        """Return messages for immediate delivery, without counting the attempt.

        If the broker does not answer they are delivered when their leases end.
        """
        given = list(messages)
        self._drop(given)
        if not given:
            return
        try:
            self._client.release(given)
        except ClientError as error:
            log.warning("%d messages return when their leases end: %s", len(given), error)

    def release_all(self) -> None:
        """Return every message that is held."""
        with self._lock:
            held = list(self._held.values())
        self.release(held)

    def close(self) -> None:
        """Stop extending. Messages that are still held are delivered when their leases end."""
        self._closing.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _end(self, message: Message, settle: Callable[[Message], list[Settled]]) -> None:
        """Settle a message. While a quota is used up it is tried again, for a lease's time."""
        until_s = time.monotonic() + self.lease.total_seconds()
        while True:
            self._drop([message])
            try:
                (result,) = settle(message)
                break
            except QuotaExceeded as error:
                pause_s = error.retry_after_s or QUOTA_PAUSE_S
                if time.monotonic() + pause_s > until_s:
                    log.error(
                        "message %s of topic %s was not settled, so it is delivered again: %s",
                        message.id,
                        message.topic,
                        error,
                    )
                    return
            self.hold([message])
            time.sleep(pause_s)
        if result is Settled.GONE:
            log.warning(
                "the lease of message %s of topic %s had ended before it was settled: it is"
                " delivered again, if no other worker has completed it",
                message.id,
                message.topic,
            )

    def _drop(self, messages: Iterable[Message]) -> None:
        with self._lock:
            for message in messages:
                self._held.pop(message.receipt, None)

    def _run(self) -> None:
        round_s = min(self.lease.total_seconds() / EXTENSIONS_PER_LEASE, ROUND_S_MAX)
        while not self._closing.wait(round_s):
            try:
                self._extend()
                if self._chore is not None:
                    self._chore()
            except ClientError as error:
                log.warning("leases or bindings were not kept, which is tried again: %s", error)
            except Exception:
                # Without this thread every running task would lose its lease.
                log.exception("leases or bindings were not kept, which is tried again")

    def _extend(self) -> None:
        with self._lock:
            held = list(self._held.values())
        if not held:
            return
        try:
            results = self._client.extend(held, lease=self.lease)
        except SettleFailed as error:
            results = error.results
        for message, result in zip(held, results, strict=True):
            # A message that was settled meanwhile is gone too.
            if result is Settled.GONE and message.receipt in self._held:
                self._drop([message])
                log.warning(
                    "the lease of message %s of topic %s has ended while its task runs:"
                    " it is delivered again",
                    message.id,
                    message.topic,
                )
