"""The sends that wait in the client: `send_soon`, `flush`, and what `close` does about them."""

from __future__ import annotations

import contextlib
import time
from typing import Unpack

from delaylog.client.codec import Codec
from delaylog.client.errors import ClientError, SendFailed
from delaylog.client.keywords import QueuedSendKeywords, TimeLimit
from delaylog.client.sending.async_sender import AsyncSender, AsyncSending
from delaylog.client.sending.batch import Row, checked_row
from delaylog.client.sending.lane_sender import Choosing
from delaylog.client.sending.outbox import Outbox
from delaylog.client.wire.times import limit_of


class AsyncQueuedSends(Choosing[AsyncSender]):
    """The calls, as the base class of the sends of a client."""

    _outbox: Outbox
    _codec: Codec
    _closed = False

    def send_soon(
        self,
        topic: str,
        body: bytes | str | None = None,
        **fields: Unpack[QueuedSendKeywords],
    ) -> AsyncSending:
        """Queue one message, and wait for the returned object, or call `flush()`, later.

        It is retried for `retry_for`. Messages of a topic are sent in order, but `send` does not
        wait for queued ones. While `pending_max` messages wait, a client with threads waits here. A
        program with tasks waits for `room()` between these calls, otherwise OutboxFull is raised.
        An invalid message raises ValueError or TypeError immediately. Failures whose result the
        program never reads are raised by `flush()` or `close()`.
        """
        if self._outbox.hooks is not None:
            fields["headers"] = self._outbox.headers(topic, fields.get("headers"))
        row = checked_row(body, fields, self._codec)
        if len(self._senders) == 1:
            return self._senders[0].put(topic, row)
        return self._put(topic, row, fields.get("id"), fields.get("key"), None)

    async def flush(self, **limits: Unpack[TimeLimit]) -> None:
        """Wait until all messages that are queued now are sent or have failed.

        SendFailed reports messages that failed, now or earlier, and whose results were never read.
        TimeoutError after the time limit (by default there is none): sending goes on.
        """
        await self._flush(limit_of("flush", limits))
        failed = self._outbox.take_unseen()
        if failed is not None:
            raise failed

    async def _end_sending(self, within_s: float | None) -> SendFailed | None:
        """Send queued messages within the limit. Returns failures that were never read."""
        self._closed = True
        error = ClientError("the client was closed before the message was sent")
        # Refuse first: a message queued after the flush would be dropped without a try.
        for sender in self._senders:
            sender.refuse()
        try:
            with contextlib.suppress(TimeoutError):
                await self._flush(self._outbox.limits.close_for_s if within_s is None else within_s)
        finally:
            for sender in self._senders:
                await sender.abandon(error)
        return self._outbox.take_unseen()

    async def _flush(self, timeout_s: float | None) -> None:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        for sender in self._senders:
            await sender.flush(None if until_s is None else max(0.0, until_s - time.monotonic()))

    def _put(
        self, topic: str, row: Row, id: str | None, key: str | None, limit_s: float | None
    ) -> AsyncSending:
        sender, free = self._sender_for(id, key)
        return sender.put(topic, row, free=free, limit_s=limit_s)
