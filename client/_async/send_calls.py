"""How AsyncClient sends: messages of one topic and shard are gathered into batches.

A message with an id or key goes to its home shard only. Other messages go round robin, skipping
unreachable shards.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from delaylog.client._async.link import AsyncLink
from delaylog.client.codec import Codec
from delaylog.client.errors import ClientError, SendFailed
from delaylog.client.keywords import OneSendKeywords, SendKeywords
from delaylog.client.models import NewMessage, Sent
from delaylog.client.sending.async_sender import AsyncSender
from delaylog.client.sending.choosing import Choosing
from delaylog.client.sending.many import all_sent
from delaylog.client.sending.outbox import Outbox
from delaylog.client.sending.row import Row, check_several, make_row, row_of
from delaylog.client.sending.sending import AsyncSending


class AsyncSendCalls(Choosing[AsyncSender]):
    """The sending part of an AsyncClient."""

    _outbox: Outbox

    def _begin_sending(self, links: Sequence[AsyncLink], outbox: Outbox, codec: Codec) -> None:
        self._outbox = outbox
        self._codec = codec
        spare = self._spare_sender if len(links) > 1 else None
        self._senders = tuple(
            AsyncSender(link.post, outbox, shard=link.name, spare=spare) for link in links
        )
        self._only_sender = self._senders[0] if len(links) == 1 else None
        self._closed = False

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        # The loop does not wait for queued messages. A failed constructor leaves none behind.
        if getattr(self, "_closed", True):
            return
        if unsent := self._outbox.unsent:
            warn(
                f"unclosed {self!r}: {unsent} messages were not sent; use it in `async with`, or "
                "await its close()",
                ResourceWarning,
                source=self,
            )

    async def send(
        self,
        topic: str,
        body: bytes | str | None = None,
        **fields: Unpack[OneSendKeywords],
    ) -> Sent:
        """Send one message. When this returns, the message is on the broker's disk.

        Its content is a `body`, a `json` value, or a `value` for the codec of the client. Messages
        that many tasks send at the same time share requests. While `pending_max` messages wait, it
        waits too. An invalid message raises ValueError or TypeError. While the broker is
        unreachable the send is retried for `retry_for_s`; the message is added exactly once. Then
        it fails with NotReached (not sent), AnswerLost (unknown), or the broker's refusal. A send
        that is cancelled may still be carried out.
        """
        if self._outbox.crowded:
            await self.room()
        return await self._queued(topic, body, fields)

    def send_soon(
        self,
        topic: str,
        body: bytes | str | None = None,
        **fields: Unpack[OneSendKeywords],
    ) -> AsyncSending:
        """Queue one message without waiting: await the returned object, or `flush()`, later.

        A loop of these calls must await `room()` between them, otherwise OutboxFull is raised. An
        invalid message raises ValueError or TypeError immediately. Failures whose result the
        program never reads are raised by `flush()` or `close()`.
        """
        return self._queued(topic, body, fields)

    async def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[SendKeywords],
    ) -> list[Sent]:
        """Send messages in order. `defaults` are keywords of `send` that apply to all of them.

        All messages are checked before the first one is sent. They may be split into several
        requests: if some of these fail, SendFailed says which messages were not sent, and why.
        """
        sendings = []
        if self._outbox.hooks is not None:
            defaults["headers"] = self._outbox.headers(topic, defaults.get("headers"))
        check_several(messages, "send_many")
        for row in [row_of(message, defaults, self._codec) for message in messages]:
            await self.room()
            members = row[3]
            if members is None:
                sendings.append(self._put(topic, row, None, None))
            else:
                own, key = (members.get(name, b"").decode() or None for name in ("id", "key"))
                sendings.append(self._put(topic, row, own, key))
        outcomes: list[Sent | BaseException] = []
        for sending in sendings:
            try:
                outcomes.append(await sending)
            except Exception as error:
                outcomes.append(error)
        return all_sent(outcomes)

    async def room(self) -> None:
        """Wait until another message may be queued: while `pending_max` messages are waiting."""
        await self._senders[0].room()

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all messages that are queued now are sent or have failed.

        SendFailed reports messages that failed, now or earlier, and whose results were never read.
        TimeoutError after `timeout_s`: sending continues in the background.
        """
        async with asyncio.timeout(timeout_s):
            for sender in self._senders:
                await sender.flush()
        failed = self._outbox.take_unseen()
        if failed is not None:
            raise failed

    async def _end_sending(self, within_s: float | None) -> SendFailed | None:
        """Send queued messages within the limit. Returns failures that were never read."""
        self._closed = True
        limits = self._outbox.limits
        error = ClientError("the client was closed before the message was sent")
        # Refuse first: a message queued after the flush would be dropped without a try.
        for sender in self._senders:
            sender.refuse()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.close_for_s if within_s is None else within_s):
                    for sender in self._senders:
                        await sender.flush()
        finally:
            for sender in self._senders:
                await sender.abandon(error)
        return self._outbox.take_unseen()

    def _queued(
        self, topic: str, body: bytes | str | None, fields: OneSendKeywords
    ) -> AsyncSending:
        if self._outbox.hooks is not None:
            fields["headers"] = self._outbox.headers(topic, fields.get("headers"))
        row = make_row(body, codec=self._codec, **fields)
        sender = self._only_sender
        if sender is not None:
            return sender.put(topic, row)
        return self._put(topic, row, fields.get("id"), fields.get("key"))

    def _put(self, topic: str, row: Row, id: str | None, key: str | None) -> AsyncSending:
        sender, free = self._sender_for(id, key)
        return sender.put(topic, row, free=free)
