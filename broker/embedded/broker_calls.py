"""The calls of an embedded broker: those of a client with one shard, which is this process.

Sends, receives and settles go straight to the engine (`calls`). All other calls are inherited from
the client; their transport is the broker itself.

Made from broker/embedded/async_broker_calls.py by `make twins`: change that one.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, Unpack, cast

from delaylog.broker.embedded.calls import EmbeddedCalls
from delaylog.broker.embedded.node import Steps
from delaylog.broker.embedded.opened import ClockT, Opened
from delaylog.client._sync.link import Link
from delaylog.client._sync.message import Message, messages_of
from delaylog.client._sync.surface import QueueClient
from delaylog.client.calls.call import Call
from delaylog.client.calls.messages import BulkSendKeywords
from delaylog.client.errors import ClientError, IdInUse
from delaylog.client.handlers import HANDLED, noted
from delaylog.client.keywords import ManySendKeywords, ReceiveKeywords
from delaylog.client.message import MessageBatch
from delaylog.client.models import NewMessage, Sent, Settled
from delaylog.client.sending.batch import Row
from delaylog.client.shards.receives import HowMuch, Wanted
from delaylog.client.shards.settlements import ToSettle, Verb
from delaylog.client.shards.sharding import ByKey, Shard, Topology
from delaylog.client.wire.bulk import SendAnswer, Texts

T = TypeVar("T")


class _ThisProcess(Shard):
    """A shard without an address."""

    def __post_init__(self) -> None:
        pass


_HERE: Final = _ThisProcess("")
_ONE_SHARD: Final = Topology((_HERE,), ByKey(), None)
log = logging.getLogger("delaylog.embedded")


class BrokerCalls(QueueClient, Generic[ClockT]):
    """The calls. A subclass defines how they are run."""

    def __init__(self, opened: Opened[ClockT]) -> None:
        """`opened` = an open folder with a running node."""
        self._opened = opened
        self._thread = opened.thread
        self.clock = opened.clock
        """The broker's clock; a `ManualClock` is moved by `clock.advance(days=30)`."""
        self._calls = EmbeddedCalls(opened.thread.node, opened.face)
        self._places = self._calls.places
        self._topology = _ONE_SHARD
        self._fetched = {}
        self._task_topics = {}
        here = Link(_HERE, self._places, cast("Any", Direct(self)), opened.face.codec)
        self._links: Sequence[Link] = [here]

    def _check_open(self) -> None:
        self._thread.check_open()

    @abstractmethod
    def _run(
        self,
        steps: Steps[T],
        *,
        soon: bool = False,
        give_back: Callable[[T], Steps[Any]] | None = None,
    ) -> T:
        """Run a call and return its answer, as `NodeThread` does."""

    @abstractmethod
    def close(self) -> None:
        """Write everything to disk and release the folder."""

    def __repr__(self) -> str:
        state = "closed" if self._thread.closed else "open"
        return f"<{type(self).__name__} {self._thread.engine.folder} {state}>"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except ClientError:
            # The error inside the block is more important: this one may be its consequence.
            if error is None:
                raise
            log.exception("closing the broker failed after another error")

    def call(self, call: Call[T]) -> T:
        """Run any call of the API (`delaylog.client.calls`)."""
        return self._run(self._calls.carry(call))

    # ------------------------------------------------------------------ send

    def _send_one(self, topic: str, row: Row, *, wait: bool = True) -> Sent:
        (sent,) = self._send_rows(topic, [row], wait=wait)
        if sent.result == "rejected":
            raise IdInUse(sent)
        return noted(topic, sent)

    def _send_rows(self, topic: str, rows: list[Row], *, wait: bool = True) -> list[Sent]:
        """Send messages, and tell the hooks."""
        began_s = time.monotonic()
        try:
            sent = self._run(self._calls.send_rows(topic, rows, wait=wait), soon=not wait)
        except Exception as error:
            self._calls.failed(topic, len(rows), error, began_s)
            raise
        self._calls.heard(topic, sent, began_s)
        return sent

    def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[ManySendKeywords],
    ) -> list[Sent]:
        """Send all messages, or none if one is refused; `defaults` are arguments of `send`."""
        sent = self._send_rows(topic, self._calls.rows(topic, messages, defaults))
        return [noted(topic, each) for each in sent] if HANDLED.get() else sent

    def send_columns(
        self,
        topic: str,
        bodies: Texts,
        *,
        shard: str | None = None,
        wait: bool = True,
        **columns: Unpack[BulkSendKeywords],
    ) -> SendAnswer:
        """Send the columns of `client.wire.bulk.encode_send`; without a time they are due now."""
        self._topology.one(shard, "send_columns")
        steps = self._calls.send_columns(topic, bodies, wait=wait, **columns)
        return self._run(steps, soon=not wait)

    # ------------------------------------------------------------------ receive and settle

    def receive(self, topic: str, **asked: Unpack[ReceiveKeywords]) -> list[Message]:
        """Lease up to `max` ready messages, all under one lease.

        It waits up to `wait` of real time for a message; a manual clock that advances by as much
        ends the wait too. A cancelled call keeps no messages: those that it had leased are given
        back.
        """
        # The broker compares the tags themselves, so `exact_tags` needs no further check.
        wanted, how_much = Wanted.split(topic, asked)
        return messages_of(self._receive(wanted, how_much), self._links[0])

    def receive_columns(self, topic: str, **asked: Unpack[ReceiveKeywords]) -> MessageBatch:
        """Receive as columns, without an object for each message; `max` is 1,000 by default.

        The batch is settled as a whole.
        """
        wanted, how_much = Wanted.split(topic, {"max": 1_000, **asked})
        return self._receive(wanted, how_much)

    def _receive(self, wanted: Wanted, how_much: HowMuch) -> MessageBatch:
        steps = self._calls.receive(wanted, how_much)
        return self._run(steps, give_back=self._calls.give_back)

    def _settle(self, verb: Verb, messages: ToSettle, **times: Any) -> list[Settled]:
        soon = not times.get("wait", True)
        return self._run(self._calls.settle(verb, messages, **times), soon=soon)


class Direct:
    """The transport of calls to a broker in this process, without a connection."""

    def __init__(self, broker: BrokerCalls[Any]) -> None:
        self._broker = broker

    def open(self) -> None:
        """Do nothing: there is no connection."""

    def carry(self, call: Call[T], **_: object) -> T:
        return self._broker.call(call)

    def close(self) -> None:
        """Do nothing: the broker stays open."""
