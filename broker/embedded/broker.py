"""EmbeddedBroker: a broker inside a program, on a data folder, with the methods of `Client`.

The engine, the files and the promises are those of `delaylog serve`, and each can open a folder
that the other has written. Any thread may call. When a send, an ack or a change returns, it is as
durable as the `fsync` option says. With `wait=False` it returns earlier; `flush()` waits for all
such calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack, cast

from delaylog.broker.embedded.broker_calls import BrokerCalls
from delaylog.broker.embedded.node import Steps
from delaylog.broker.embedded.opened import ClockT, Opened
from delaylog.broker.embedded.sendings import SoonSending, SoonSendings
from delaylog.client._sync.workers.ports import queue_ports
from delaylog.client._sync.workers.worker import ThreadWorker
from delaylog.client.keywords import OneSendKeywords, QueuedSendKeywords, TimeLimit
from delaylog.client.models import Sent
from delaylog.client.wire.times import limit_of

T = TypeVar("T")


class EmbeddedBroker(BrokerCalls[ClockT]):
    """A data folder, opened by `delaylog.open`. Use it in a `with` block, or close it.

    Calls raise the errors of `Client` (`delaylog.client.errors`), and ClosedError once the broker
    was closed or its disk has failed.
    """

    def __init__(self, opened: Opened[ClockT]) -> None:
        super().__init__(opened)
        ThreadWorker.__init__(self, queue_ports(self), hooks=opened.face.hooks)
        self._soon = SoonSendings(opened.thread, self._calls)

    def close(self) -> None:
        """Stop the workers, write everything to disk and release the folder.

        Raises SendFailed with the failures of `send_soon` that no caller has read.
        """
        self._thread.check_caller()
        try:
            # A forked child has none of the parent's worker threads, and must not use its files.
            if not self._thread.forked:
                self.stop()
                self._end_loops()
        finally:
            self._opened.close()
        failed = self._soon.take_unseen()
        if failed is not None:
            raise failed

    def serve_ui(self, *, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serve the dashboard of this broker, on its own clock, and return the URL.

        Port 0: any free one. It is served until the broker is closed, without authentication: keep
        to a loopback address. Raises OSError if the address cannot be used, ValueError if the port
        is not from 0 to 65535, TypeError if it is no integer or the host no text.
        """
        return self._opened.serve_ui(host, port)

    def _run(
        self,
        steps: Steps[T],
        *,
        soon: bool = False,
        give_back: Callable[[T], Steps[Any]] | None = None,
    ) -> T:
        return self._thread.run(steps, soon=soon, give_back=give_back)

    # ------------------------------------------------------------------ send

    def send(
        self,
        topic: str,
        body: bytes | str | None = None,
        **fields: Unpack[OneSendKeywords],
    ) -> Sent:
        """Send one message, due at a time, after a delay, or now."""
        wait = cast("dict[str, Any]", fields).pop("wait", True)
        return self._send_one(topic, self._calls.row(topic, body, fields), wait=wait)

    def send_soon(
        self,
        topic: str,
        body: bytes | str | None = None,
        **fields: Unpack[QueuedSendKeywords],
    ) -> SoonSending:
        """Send one message as `send` does, without waiting for the disk.

        The message is appended to the log when this returns; `result()` of the returned object
        waits for the disk. Errors in the arguments are raised here. Refusals that no caller has
        read are raised by `flush()` or `close()`.
        """
        row = self._calls.row(topic, body, fields)
        return self._soon.hand_over(lambda: self._send_one(topic, row, wait=False))

    def flush(self, **limits: Unpack[TimeLimit]) -> None:
        """Wait for all sends of `send_soon`, and for all calls with `wait=False`.

        Raises SendFailed with refusals of `send_soon` that no caller has read, and TimeoutError
        after the time limit; the broker then goes on writing.
        """
        self._thread.run(self._calls.flush(), timeout_s=limit_of("flush", limits))
        failed = self._soon.take_unseen()
        if failed is not None:
            raise failed
