"""EmbeddedBroker: a broker inside a program, on a folder, with the methods of `Client`.

The engine, the files and the promises are those of `delaylog serve`: a folder that one has written
the other serves. Any thread may call. A send, an ack or a change has been made as safe as the fsync
dial says when its call returns, unless `wait=False`; `flush()` waits for all of those.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from delaylog.broker.embedded.broker_calls import BrokerCalls
from delaylog.broker.embedded.calls import EmbeddedCalls, Steps
from delaylog.broker.embedded.clocks import Clock, ManualClock
from delaylog.broker.embedded.driving import run
from delaylog.broker.embedded.hot import ToSettle
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.broker.embedded.sendings import SoonSending, SoonSendings, within
from delaylog.client._sync.workers.ports import queue_ports
from delaylog.client._sync.workers.worker import ThreadWorker
from delaylog.client.bulk import SendAnswer, Texts
from delaylog.client.errors import ClientError
from delaylog.client.message import MessageBatch
from delaylog.client.models import (
    NewMessage,
    SendKeywords,
    Sent,
    Settled,
)

if TYPE_CHECKING:
    from delaylog.client.surface import QueueClient

T = TypeVar("T")
ClockT = TypeVar("ClockT", bound=Clock)
log = logging.getLogger("delaylog.embedded")


class EmbeddedBroker(BrokerCalls, ThreadWorker, Generic[ClockT]):
    """One folder, opened by `delaylog.open`. Use it in `with`, or close it.

    Calls raise what those of `Client` raise (`delaylog.client.errors`), and ClosedError once it is
    closed or its disk has failed.
    """

    def __init__(self, node: EmbeddedNode, clock: ClockT, lock: int, namespace: str) -> None:
        """Over a node that runs; `lock` is the descriptor that keeps the folder."""
        self._node = node
        self._lock: int | None = lock
        self._closing = threading.Lock()
        self._calls = EmbeddedCalls(node, namespace)
        self._soon = SoonSendings(node)
        ThreadWorker.__init__(self, queue_ports(self))
        self.clock = clock
        """Its clock; a manual one is moved by `clock.advance(days=30)`."""

    def __repr__(self) -> str:
        state = "closed" if self._node.closed else "open"
        return f"<EmbeddedBroker {self._node.engine.folder} {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except ClientError:
            # What went wrong inside says more than what it took along.
            if error is None:
                raise
            log.exception("while leaving by an error")

    def close(self) -> None:
        """Stop consuming, then end: all is on the disk, whatever the dial, and the folder is free.

        SendFailed tells of sends of `send_soon` that failed and that nobody asked for.
        """
        try:
            # The threads of a fork's parent are not there, and what they hold is the parent's.
            if not self._node.forked:
                self.stop()
        finally:
            self._close()
        failed = self._soon.take_unseen()
        if failed is not None:
            raise failed

    def _close(self) -> None:
        # The folder is free when the first of several that close it has written everything.
        with self._closing:
            try:
                if isinstance(self.clock, ManualClock) and not self._node.closed:
                    self.clock.detach(self._node)
                self._node.close()
            finally:
                lock, self._lock = self._lock, None
                if lock is not None:
                    os.close(lock)

    def _run(self, steps: Steps[T]) -> T:
        return run(self._node, steps)

    # ------------------------------------------------------------------ send

    def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        wait: bool = True,
        **fields: Unpack[SendKeywords],
    ) -> Sent:
        """Send one message, due at a time, after a while, or now."""
        return self._run(self._calls.send(topic, body, wait=wait, **fields))

    def send_soon(
        self, topic: str, body: bytes | str, **fields: Unpack[SendKeywords]
    ) -> SoonSending:
        """Send one message as `send` does, without waiting for the disk.

        It stands in the log when this returns; `result()` of what it gives waits for the disk.
        What can be judged without the broker is raised here, and refusals that nobody asks for are
        raised by `flush()` or `close()`.
        """
        return self._soon.hand_over(self._calls.send(topic, body, wait=False, **fields))

    def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        *,
        wait: bool = True,
        **defaults: Unpack[SendKeywords],
    ) -> list[Sent]:
        """Send all of them, or none where one is wrong; `defaults` are members as of `send`."""
        return self._run(self._calls.send_many(topic, messages, wait=wait, **defaults))

    def send_columns(
        self, topic: str, bodies: Texts, *, wait: bool = True, **columns: Any
    ) -> SendAnswer:
        """Send columns as `client.bulk.encode_send` takes them; without a time they are due now."""
        return self._run(self._calls.send_columns(topic, bodies, wait=wait, **columns))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait for all of `send_soon`, and all that was called with `wait=False`.

        SendFailed tells of refusals of `send_soon` that nobody asked for. TimeoutError after
        `timeout_s`: it goes on.
        """
        within(timeout_s, lambda: self._run(self._calls.flush()), "not everything was on the disk")
        failed = self._soon.take_unseen()
        if failed is not None:
            raise failed

    # ------------------------------------------------------------------ receive and settle

    def receive_columns(
        self,
        topic: str,
        *,
        max: int = 1_000,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        tags_mode: str = "any",
        ids: Sequence[str] = (),
    ) -> MessageBatch:
        """The same as columns: nothing is made for each message. It is settled as a whole."""
        return self._run(
            self._calls.receive(
                topic,
                max=max,
                wait_ms=wait_ms,
                lease_ms=lease_ms,
                group=group,
                tags=tags,
                tags_mode=tags_mode,
                ids=ids,
            )
        )

    def ack(self, messages: ToSettle, *, wait: bool = True) -> list[Settled]:
        """They are done with; a result for each."""
        return self._run(self._calls.settle("ack", messages, wait=wait))

    def nack(
        self,
        messages: ToSettle,
        *,
        delay_ms: int | None = None,
        wait: bool = True,
    ) -> list[Settled]:
        """They come again after a while; None = the topic's backoff."""
        return self._run(self._calls.settle("nack", messages, delay_ms=delay_ms, wait=wait))

    def extend(self, messages: ToSettle, *, lease_ms: int, wait: bool = True) -> list[Settled]:
        """They are held so long from now; 0 gives them back."""
        return self._run(self._calls.settle("extend", messages, lease_ms=lease_ms, wait=wait))


if TYPE_CHECKING:
    # What recipes and workers are written against.
    _SURFACE: type[QueueClient] = EmbeddedBroker[Any]
