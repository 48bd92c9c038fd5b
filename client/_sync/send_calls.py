"""How Client sends: at once on the caller's thread, or gathered by a thread behind it.

The one rule: a message goes to its home if it has one and nowhere else; what any shard may have
goes round robin, and past shards that cannot be reached.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Unpack

from delaylog.client._sync.link import Link
from delaylog.client.errors import ClientError, SendFailed
from delaylog.client.keywords import SendKeywords
from delaylog.client.models import NewMessage, Sent
from delaylog.client.sending.choosing import Choosing
from delaylog.client.sending.direct_sender import DirectSender, Place
from delaylog.client.sending.many import all_sent
from delaylog.client.sending.outbox import Outbox
from delaylog.client.sending.row import Row, check_several, make_row, row_of
from delaylog.client.sending.sending import ThreadSending
from delaylog.client.sending.thread_sender import ThreadSender
from delaylog.client.wire.checks import check_topic


class SendCalls(Choosing[ThreadSender]):
    """The sending part of a Client."""

    _outbox: Outbox

    def _begin_sending(self, links: Sequence[Link], outbox: Outbox) -> None:
        self._outbox = outbox
        self._direct = DirectSender(outbox)
        self._posts: tuple[Place, ...] = tuple((link.name, link.post) for link in links)
        lock = threading.Lock()
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
        body: bytes | str,
        **fields: Unpack[SendKeywords],
    ) -> Sent:
        """Send one message; when this returns it is on the broker's disk.

        It goes on this thread, or, where the client has a `linger_ms`, together with what other
        threads send. What is wrong with the message is raised at once, as ValueError or TypeError.
        It is repeated for `retry_for_s` while the broker is away, and is there once, however often.
        After that: NotReached (it was not sent), AnswerLost (it may have been), or the broker's
        refusal.
        """
        check_topic(topic)
        if self._outbox.hooks is not None:
            fields["headers"] = self._outbox.headers(topic, fields.get("headers"))
        row = make_row(body, **fields)
        if self._outbox.limits.linger_ms:
            return self._put(topic, row, fields.get("id"), fields.get("key")).result()
        return self._direct.send(topic, row, self._places_for(fields.get("id"), fields.get("key")))

    def send_soon(
        self,
        topic: str,
        body: bytes | str,
        **fields: Unpack[SendKeywords],
    ) -> ThreadSending:
        """Queue one message for a thread that sends, and go on; it waits only for room.

        `result()` of what it gives waits for the broker. Messages of a topic go in order; `send`
        does not wait for them. Failures that nobody asks for are raised by `flush()` or `close()`.
        """
        if self._outbox.hooks is not None:
            fields["headers"] = self._outbox.headers(topic, fields.get("headers"))
        row = make_row(body, **fields)
        return self._put(topic, row, fields.get("id"), fields.get("key"))

    def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[SendKeywords],
    ) -> list[Sent]:
        """Send these in order; `defaults` are members as `send` takes them.

        They are judged before the first is sent. They may come to be in several requests: where
        some fail the others are there, and SendFailed says how many are not, and why.
        """
        check_topic(topic)
        check_several(messages, "send_many")
        if self._outbox.hooks is not None:
            defaults["headers"] = self._outbox.headers(topic, defaults.get("headers"))
        rows = [row_of(message, defaults) for message in messages]
        homes: dict[int | None, list[int]] = {}
        for number, (_, _, _, members) in enumerate(rows):
            own = key = None
            if members is not None:
                own, key = (members.get(name, b"").decode() or None for name in ("id", "key"))
            homes.setdefault(self._topology.home(own, key), []).append(number)
        outcomes: dict[int, Sent | BaseException] = {}
        for home, numbers in homes.items():
            places = self._places_at(home)
            found = self._direct.send_rows(topic, [rows[number] for number in numbers], places)
            outcomes.update(zip(numbers, found, strict=True))
        return all_sent(outcomes[number] for number in range(len(rows)))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that `send_soon` queued before was sent or given up.

        SendFailed tells of messages that were given up, now or before, and whose results nobody
        asked for. TimeoutError after `timeout_s`: it goes on.
        """
        self._flush(timeout_s)
        failed = self._outbox.take_unseen()
        if failed is not None:
            raise failed

    def _end_sending(self, within_s: float | None) -> SendFailed | None:
        """Send what is queued, for `retry_for_s` at most; what nobody knows to have failed."""
        limits = self._outbox.limits
        error = ClientError("the client was closed before the message was sent")
        # Else what others send meanwhile would be taken behind the flush, and dropped untried.
        for sender in self._senders:
            sender.refuse()
        try:
            with contextlib.suppress(TimeoutError):
                self._flush(limits.close_for_s if within_s is None else within_s)
        finally:
            for sender in self._senders:
                sender.abandon(error)
        return self._outbox.take_unseen()

    def _flush(self, timeout_s: float | None) -> None:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        for sender in self._senders:
            sender.flush(None if until_s is None else max(0.0, until_s - time.monotonic()))

    def _put(self, topic: str, row: Row, id: str | None, key: str | None) -> ThreadSending:
        sender, free = self._sender_for(id, key)
        return sender.put(topic, row, free=free)

    def _places_for(self, id: str | None, key: str | None) -> Sequence[Place]:
        return self._places_at(self._topology.home(id, key))

    def _places_at(self, home: int | None) -> Sequence[Place]:
        if home is not None:
            return self._posts[home : home + 1]
        return [self._posts[at] for at in self._topology.order()]
