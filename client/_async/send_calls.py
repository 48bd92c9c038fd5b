"""How AsyncClient sends: messages of one topic and shard are gathered into batches.

A message with an id or key goes to its home shard only. Other messages go round robin, skipping
unreachable shards.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from delaylog.client._async.link import AsyncLink
from delaylog.client._async.queued_sends import AsyncQueuedSends
from delaylog.client.codec import Codec
from delaylog.client.errors import NotReachedInTime
from delaylog.client.handlers import noted
from delaylog.client.keywords import (
    ManySendKeywords,
    OneSendKeywords,
)
from delaylog.client.models import NewMessage, Sent
from delaylog.client.sending.async_sender import AsyncSender, AsyncSending
from delaylog.client.sending.batch import check_several, checked_row, row_of
from delaylog.client.sending.lane import RETRY_FOR_S_MAX
from delaylog.client.sending.outbox import Outbox, all_sent, split_send_limit


class AsyncSendCalls(AsyncQueuedSends):
    """The sending part of an AsyncClient."""

    def _begin_sending(self, links: Sequence[AsyncLink], outbox: Outbox, codec: Codec) -> None:
        self._outbox = outbox
        self._codec = codec
        spare = self._spare_sender if len(links) > 1 else None
        self._senders = tuple(
            AsyncSender(link.post, outbox, shard=link.name, spare=spare) for link in links
        )
        self._only_sender = self._senders[0] if len(links) == 1 else None
        self._timeout_s = min(links[0].transport.times.timeout_s, RETRY_FOR_S_MAX)

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        # The loop does not wait for queued messages. A failed constructor leaves none behind.
        if self._closed or not hasattr(self, "_outbox"):
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
        unreachable the send is retried until the time limit; the message is added exactly once.
        Then it fails with NotReachedInTime (not sent), AnswerLate (unknown), or the broker's
        refusal. A send that is cancelled may still be carried out.
        """
        limit_s = self._timeout_s
        if "timeout" in fields:
            limit_s, fields = split_send_limit(fields, limit_s)
        if self._outbox.crowded:
            await self._room_within(limit_s)
        if self._outbox.hooks is not None:
            fields["headers"] = self._outbox.headers(topic, fields.get("headers"))
        row = checked_row(body, fields, self._codec)
        # Without an AsyncSending, and without a second coroutine: a fifth of the cost of a send.
        sender, free = self._only_sender, False
        if sender is None:
            sender, free = self._sender_for(fields.get("id"), fields.get("key"))
        sent = await sender.begin(topic, row, free=free, limit_s=limit_s)
        return noted(topic, sent) if sent.result == "kept" else sent

    async def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[ManySendKeywords],
    ) -> list[Sent]:
        """Send messages in order. `defaults` are keywords of `send` that apply to all of them.

        All messages are checked before the first one is sent. They may be split into several
        requests, each with the time limit: if some of these fail, SendFailed says which messages
        were not sent, and why.
        """
        limit_s, of_all = split_send_limit(defaults, self._timeout_s)
        if self._outbox.hooks is not None:
            of_all["headers"] = self._outbox.headers(topic, of_all.get("headers"))
        check_several(messages, "send_many")
        rows = [row_of(message, of_all, self._codec) for message in messages]
        sendings: list[AsyncSending] = []
        first_open = 0
        late: BaseException | None = None
        for row in rows:
            if self._outbox.crowded:
                try:
                    await self._room_within(limit_s)
                except NotReachedInTime as error:
                    late = error
                while first_open < len(sendings) and sendings[first_open].done():
                    late = late or _late(sendings[first_open])
                    first_open += 1
            else:
                await self.room()
            if late is not None:
                break
            own, key = (row[3] or {}).get("id", b""), (row[3] or {}).get("key", b"")
            sendings.append(
                self._put(topic, row, own.decode() or None, key.decode() or None, limit_s)
            )
        outcomes: list[Sent | BaseException] = []
        for sending in sendings:
            try:
                outcomes.append(await sending)
            except Exception as error:
                outcomes.append(error)
        # Once the broker is away for as long as a message may wait, the others do not wait too.
        untried = NotReachedInTime(f"not tried: {late}")
        return all_sent([*outcomes, *[untried] * (len(rows) - len(sendings))])

    async def room(self) -> None:
        """Wait until another message may be queued: while `pending_max` messages are waiting."""
        await self._senders[0].room()

    async def _room_within(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self.room()
        except TimeoutError:
            raise self._outbox.no_room(limit_s) from None


def _late(sending: AsyncSending) -> BaseException | None:
    """The failure of an ended send, if its time limit has passed."""
    failure = sending.exception()
    return failure if isinstance(failure, TimeoutError) else None
