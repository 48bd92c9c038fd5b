"""Subscribing: the loop over the messages of a topic, from a stream or by long polls.

Messages that were fetched and not yielded belong to the loop: their leases are extended while
earlier messages are handled, and they are released when the loop is left or the client is closed.
The attempt at a message begins when the loop yields it.

Made from client/_async/subscriptions.py by `make twins`: change that one.
"""

from __future__ import annotations

import logging
import os
import random
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, Unpack, cast

from delaylog.client._sync.concurrency import sleep
from delaylog.client._sync.deliveries import Polls
from delaylog.client._sync.link import Link
from delaylog.client._sync.message import Message
from delaylog.client._sync.settle_calls import SettleCalls
from delaylog.client.errors import AnswerLost, ApiError, ClientError, NotReached, SettleFailed
from delaylog.client.keywords import ReceiveKeywords, SubscribeKeywords
from delaylog.client.message import LeasedMessage
from delaylog.client.models import Settled
from delaylog.client.shards.receives import Wanted
from delaylog.client.wire.checks import check_keywords
from delaylog.client.workers.consumer import FETCHING, LEASE, WAIT
from delaylog.client.workers.failures import Outages, is_refusal, wait_after

log = logging.getLogger("delaylog.client")
FETCHED_MAX: Final = 10
"""Messages of one receive, unless `max` says otherwise."""


class Fetched(deque[Message]):
    """The messages that a loop has fetched and not yielded."""

    def __init__(self, deliveries: Polls) -> None:
        super().__init__()
        self.deliveries = deliveries
        self._process_id = os.getpid()

    def forget_inherited(self) -> None:
        """In a forked child, drop the messages: its parent yields them."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self.clear()


class Subscribing(SettleCalls):
    """The loop, as a mixin; the inheriting class receives."""

    _fetched: dict[int, Fetched]
    """The messages of each open loop that it has not yielded, by a number."""

    @abstractmethod
    def receive(self, topic: str, **asked: Unpack[ReceiveKeywords]) -> list[Message]:
        """Lease messages."""

    def subscribe(self, topic: str, **asked: Unpack[SubscribeKeywords]) -> Iterator[Message]:
        """Iterate over the messages of a topic as they come. The loop ends when the client closes.

        Settle each message, best by `with message:`. One that is not settled is delivered
        again when its lease ends. Up to `max` (10) messages are fetched by one receive; those not
        yielded yet keep their leases, and are released, untried, when the loop is left.

        `lease` (30 s) counts from the moment at which a message is yielded, and so does the
        attempt. The other arguments are those of `receive`. An outage of the broker is
        logged and waited for; a refusal, such as a missing group, is raised.
        """
        check_keywords("subscribe", asked, SubscribeKeywords)
        members = cast("ReceiveKeywords", {"max": FETCHED_MAX, **asked})
        if members.get("lease") is None:
            members["lease"] = LEASE
        members["wait"] = WAIT
        members["begin"] = 1
        _, how_much = Wanted.split(topic, members)
        lease_ms = how_much["lease_ms"]
        assert lease_ms is not None
        lease = timedelta(milliseconds=lease_ms)
        return self._messages_of(self._deliveries(topic, members), topic, lease)

    def _deliveries(self, topic: str, members: ReceiveKeywords) -> Polls:
        """Where a loop gets its messages from."""
        return Polls(self.receive, topic, members)

    def _messages_of(self, deliveries: Polls, topic: str, lease: timedelta) -> Iterator[Message]:
        waiting = Fetched(deliveries)
        half_s = lease.total_seconds() / 2
        outages = Outages(f"subscription of {topic}", "the broker")
        self._fetched[id(waiting)] = waiting
        try:
            while id(waiting) in self._fetched:
                try:
                    waiting.extend(deliveries.fetch())
                except Exception as error:
                    if id(waiting) not in self._fetched:
                        return
                    if not isinstance(error, (NotReached, AnswerLost, ApiError)):
                        raise
                    if is_refusal(error):
                        raise
                    failures = outages.failed(error, time.monotonic())
                    sleep(wait_after(FETCHING, failures, random.random(), error))
                    continue
                outages.answered()
                leased_at_s = time.monotonic() - deliveries.waited_s
                first = deliveries.begins_first
                while waiting:
                    waiting.extend(deliveries.arrived(len(waiting)))
                    now_s = time.monotonic()
                    if now_s - leased_at_s >= half_s:
                        self._keep(waiting, lease)
                        leased_at_s = now_s
                        continue
                    message = waiting.popleft()
                    begun = first and message.attempts == 1
                    try:
                        begun = begun or self._begun(message, lease)
                    except BaseException:
                        # A loop that is cancelled releases this message too.
                        waiting.appendleft(message)
                        raise
                    if begun:
                        yield message
                        waiting.forget_inherited()
                    first = False
        finally:
            try:
                self._end_loop(waiting)
            finally:
                # Only now: `close` waits for loops that end.
                self._fetched.pop(id(waiting), None)

    def _begun(self, message: Message, lease: timedelta) -> bool:
        """Begin the attempt at a message. Returns whether its lease still holds."""
        try:
            (result,) = self.begin(message, lease=lease)
        except (NotReached, AnswerLost, ApiError) as error:
            log.warning(
                "%s: message %s is not yielded now but delivered again: %s",
                message.topic,
                message.id,
                error,
            )
            return False
        return result is not Settled.GONE

    def _keep(self, waiting: Fetched, lease: timedelta) -> None:
        """Extend the leases of fetched messages, and forget those whose leases have ended."""
        messages = list(waiting)
        try:
            results: Sequence[Settled | ClientError] = self.extend(messages, lease=lease)
        except ClientError as error:
            log.warning("leases were not extended; their messages are delivered again: %s", error)
            results = error.results if isinstance(error, SettleFailed) else [error] * len(messages)
        waiting.clear()
        for message, result in zip(messages, results, strict=True):
            if result in (Settled.DONE, Settled.UNKNOWN):
                waiting.append(message)

    def _end_loops(self) -> None:
        """Release the messages of open loops, which end."""
        while self._fetched:
            _, waiting = self._fetched.popitem()
            self._end_loop(waiting)

    def _end_loop(self, waiting: Fetched) -> None:
        """Release the messages of a loop that ends, and of its deliveries."""
        waiting.extend(waiting.deliveries.stop())
        self._release(waiting)
        waiting.deliveries.close()

    def _release(self, waiting: Fetched) -> None:
        """Release messages. If that fails, their leases expire."""
        waiting.forget_inherited()
        by_link: dict[Link, list[LeasedMessage]] = {}
        for message in waiting:
            by_link.setdefault(message.batch.settler, []).append(message)
        waiting.clear()
        for link, messages in by_link.items():
            link.give_back(messages)
