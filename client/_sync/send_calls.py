"""How Client sends: directly on the caller's thread, or gathered by a background thread.

A message with an id or key goes to its home shard only. Other messages go round robin, skipping
unreachable shards.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final, Unpack

from delaylog.client._sync.link import Link
from delaylog.client._sync.queued_sends import QueuedSends
from delaylog.client.codec import Codec
from delaylog.client.errors import AnswerLate, ClientError
from delaylog.client.handlers import HANDLED, noted
from delaylog.client.keywords import (
    ManySendKeywords,
    OneSendKeywords,
)
from delaylog.client.models import NewMessage, Sent
from delaylog.client.sending.batch import check_several, checked_row, row_of
from delaylog.client.sending.direct_sender import DirectSender, Place
from delaylog.client.sending.lane import RETRY_FOR_S_MAX
from delaylog.client.sending.outbox import Outbox, all_sent, split_send_limit
from delaylog.client.sending.thread_sender import ThreadSender, ThreadSending
from delaylog.client.wire.checks import check_topic

SAY_S: Final = 0.5
"""How much longer a caller waits for what the sending thread knows about its message."""


class SendCalls(QueuedSends):
    """The sending part of a Client."""

    def _begin_sending(self, links: Sequence[Link], outbox: Outbox, codec: Codec) -> None:
        self._outbox = outbox
        self._codec = codec
        self._direct = DirectSender(outbox)
        self._timeout_s = min(links[0].transport.times.timeout_s, RETRY_FOR_S_MAX)
        self._posts: tuple[Place, ...] = tuple((link.name, link.post) for link in links)
        # Hooks are called under it, and may queue messages.
        lock = threading.RLock()
        self._senders = tuple(
            ThreadSender(
                link.post,
                outbox,
                lock=lock,
                shard=link.name,
                spare=self._spare_sender if len(links) > 1 else None,
            )
            for link in links
        )

    def send(
        self,
        topic: str,
        body: bytes | str | None = None,
        **fields: Unpack[OneSendKeywords],
    ) -> Sent:
        """Send one message. When this returns, the message is on the broker's disk.

        Its content is a `body`, a `json` value, or a `value` for the codec of the client. It is
        sent on this thread; if the client has a `linger`, it is batched with messages of
        other threads. An invalid message raises ValueError or TypeError immediately. While the
        broker is unreachable the send is retried until the time limit; the message is added exactly
        once. Then it fails with NotReachedInTime (not sent), AnswerLate (unknown), or the broker's
        refusal.
        """
        limit_s, given = split_send_limit(fields, self._timeout_s)
        check_topic(topic)
        if self._outbox.hooks is not None:
            given["headers"] = self._outbox.headers(topic, given.get("headers"))
        row = checked_row(body, given, self._codec)
        if self._outbox.limits.linger:
            sending = self._put(topic, row, fields.get("id"), fields.get("key"), limit_s)
            return _waited_for(sending, limit_s)
        places = self._places_for(fields.get("id"), fields.get("key"))
        return noted(topic, self._direct.send(topic, row, places, limit_s))

    def send_many(
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
        check_topic(topic)
        check_several(messages, "send_many")
        if self._outbox.hooks is not None:
            of_all["headers"] = self._outbox.headers(topic, of_all.get("headers"))
        rows = [row_of(message, of_all, self._codec) for message in messages]
        homes: dict[int | None, list[int]] = {}
        for number, (_, _, _, members) in enumerate(rows):
            own = key = None
            if members is not None:
                own, key = (members.get(name, b"").decode() or None for name in ("id", "key"))
            homes.setdefault(self._topology.home(own, key), []).append(number)
        outcomes: dict[int, Sent | BaseException] = {}
        for home, numbers in homes.items():
            places = self._places_at(home)
            part = [rows[number] for number in numbers]
            found = self._direct.send_rows(topic, part, places, limit_s)
            outcomes.update(zip(numbers, found, strict=True))
        sent = all_sent(outcomes[number] for number in range(len(rows)))
        return [noted(topic, each) for each in sent] if HANDLED.get() else sent

    def _places_for(self, id: str | None, key: str | None) -> Sequence[Place]:
        return self._places_at(self._topology.home(id, key))

    def _places_at(self, home: int | None) -> Sequence[Place]:
        if home is not None:
            return self._posts[home : home + 1]
        return [self._posts[at] for at in self._topology.order()]


def _waited_for(sending: ThreadSending, limit_s: float) -> Sent:
    """The result of a queued message, in time even while its thread waits for another request."""
    try:
        return sending.result(timedelta(seconds=limit_s + SAY_S))
    except TimeoutError as error:
        if isinstance(error, ClientError):
            raise
        raise AnswerLate(
            f"not sent by the thread of this client (time limit {limit_s:g} s): the message may "
            "exist, and may still be sent"
        ) from None
