"""EmbeddedBroker: a broker inside a program, on a folder, with the methods of `Client`.

The engine, the files and the promises are those of `delaylog serve`: a folder that one has written
the other serves. Any thread may call. A send, an ack or a change has been made as safe as the fsync
dial says when its call returns, unless `wait=False`; `flush()` waits for all of those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from delaylog.broker.embedded.broker_calls import BrokerCalls
from delaylog.broker.embedded.calls import Steps
from delaylog.broker.embedded.opened import ClockT, Opened
from delaylog.broker.embedded.waits.driving import run
from delaylog.broker.embedded.waits.sendings import SoonSending, SoonSendings, within
from delaylog.client._sync.workers.ports import queue_ports
from delaylog.client._sync.workers.worker import ThreadWorker
from delaylog.client.keywords import SendKeywords
from delaylog.client.message import MessageBatch
from delaylog.client.models import Sent
from delaylog.client.shards.receiving import Wanted

if TYPE_CHECKING:
    from delaylog.client.surface import QueueClient

T = TypeVar("T")


class EmbeddedBroker(BrokerCalls[ClockT]):
    """One folder, opened by `delaylog.open`. Use it in `with`, or close it.

    Calls raise what those of `Client` raise (`delaylog.client.errors`), and ClosedError once it is
    closed or its disk has failed.
    """

    def __init__(self, opened: Opened[ClockT]) -> None:
        super().__init__(opened)
        ThreadWorker.__init__(self, queue_ports(self))
        self._soon = SoonSendings(opened.node)

    def close(self) -> None:
        """Stop consuming, then end: all is on the disk, whatever the dial, and the folder is free.

        SendFailed tells of sends of `send_soon` that failed and that nobody asked for.
        """
        try:
            # The threads of a fork's parent are not there, and what they hold is the parent's.
            if not self._node.forked:
                self.stop()
        finally:
            self._opened.close()
        failed = self._soon.take_unseen()
        if failed is not None:
            raise failed

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

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait for all of `send_soon`, and all that was called with `wait=False`.

        SendFailed tells of refusals of `send_soon` that nobody asked for. TimeoutError after
        `timeout_s`: it goes on.
        """
        within(timeout_s, lambda: self._run(self._calls.flush()), "not everything was on the disk")
        failed = self._soon.take_unseen()
        if failed is not None:
            raise failed

    def _receive(
        self, wanted: Wanted, *, max: int, wait_ms: int, lease_ms: int | None
    ) -> MessageBatch:
        return self._run(self._calls.receive(wanted, max=max, wait_ms=wait_ms, lease_ms=lease_ms))


if TYPE_CHECKING:
    # What recipes and workers are written against.
    _SURFACE: type[QueueClient] = EmbeddedBroker[Any]
