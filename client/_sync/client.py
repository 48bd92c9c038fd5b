"""Client: delayed messages for programs with threads, on one broker or on several as shards.

When a method returns, its effect is on the broker's disk; an unknown outcome is raised as an error.
Arguments that can be checked without the broker raise ValueError or TypeError before anything is
sent.

Made from client/_async/client.py by `make twins`: change that one.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, NoReturn, Self, TypeVar, Unpack

from delaylog.client._sync.concurrency import INTERRUPTS, sleep
from delaylog.client._sync.deliveries import Polls
from delaylog.client._sync.link import Link
from delaylog.client._sync.message import Message
from delaylog.client._sync.receiver import Receiver
from delaylog.client._sync.send_calls import SendCalls
from delaylog.client._sync.surface import QueueClient
from delaylog.client._sync.workers.ports import LinkPort
from delaylog.client._sync.workers.worker import ThreadWorker
from delaylog.client.calls.call import Places
from delaylog.client.calls.messages import BulkSendKeywords
from delaylog.client.codec import JSON, Codec, check_codec
from delaylog.client.errors import ClientError, NotReached, in_time
from delaylog.client.hooks import Hooks, as_one, overridden
from delaylog.client.keywords import ReceiveKeywords, SettleTimes
from delaylog.client.models import Settled
from delaylog.client.options import (
    ClientOptions,
    EnvironmentOptions,
    split_connection,
    split_options,
)
from delaylog.client.sending.lane import Producers
from delaylog.client.sending.outbox import INTERRUPTED_S, Outbox, split_send_limit
from delaylog.client.shards.receives import Wanted
from delaylog.client.shards.settlements import Share, ToSettle, Verb, joined, shares_of
from delaylog.client.shards.sharding import ByKey, Shard, Sharding, Topology
from delaylog.client.wire.bulk import SendAnswer, Texts, encode_send, or_now
from delaylog.client.wire.checks import check_keywords, check_text
from delaylog.client.wire.endpoints import URL, default_endpoints, endpoints_from
from delaylog.client.wire.exchange import SHORTEST_S
from delaylog.client.wire.leader_route import LeaderRoute
from delaylog.client.wire.patience import Patience
from delaylog.client.wire.times import duration_s

T = TypeVar("T")
log = logging.getLogger("delaylog.client")


class Client(SendCalls, QueueClient):
    """A client of one broker, one cluster, or several of these as shards.

    `"http://a:1"` is one broker, `"http://a:1,http://b:1"` is one cluster, and several arguments
    are shards. Without an argument, DELAYLOG_URL gives the addresses, and without that variable the
    address is http://127.0.0.1:8711. Creating a client opens no connection. Use it as
    `with Client(…) as client:`, or call `close`.
    """

    def __init__(
        self,
        *endpoints: str | Shard,
        namespace: str = "default",
        zone: str | None = None,
        sharding: Sharding | None = None,
        producer: str | None = None,
        hooks: Sequence[Hooks] = (),
        codec: Codec = JSON,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Create a client. No connection is opened before the first call.

        `zone`: the zone of this client; shards of the same zone are preferred.
        `sharding`: how messages are assigned to shards; `ByKey()` by default.
        `producer`: prefix of the producer names with which brokers recognize repeated sends. The
        client appends a unique part.
        `timeout`: how long a call may take, its repeats included; 10 s.
        `retry_for`: how long messages of `send_soon` are retried.
        `linger`: how long a send waits for others to share its request. A request has at most
        `batch_max` messages and `batch_bytes_max` bytes.
        `pending_max`, `pending_bytes_max`: how many messages and bytes may wait to be sent.
        `hooks`: a list of callbacks for metrics and tracing.
        `codec`: encodes what `send(value=…)` takes, and decodes what `message.value()` returns.
        """
        # Imported here: an embedded broker uses this module and needs no HTTP library.
        from delaylog.client._sync.transport import Transport

        called = as_one(hooks)
        check_codec(codec)
        check_text("zone", zone)
        self._topology = Topology(endpoints or default_endpoints(), sharding or ByKey(), zone)
        self._places = Places(namespace)
        limits, connection = split_options(options)
        credentials, transport = split_connection(connection)
        self._links: Sequence[Link] = tuple(
            Link(
                shard,
                self._places,
                Transport(LeaderRoute(shard.url, shard.members, credentials), **transport),
                codec,
            )
            for shard in self._topology.shards
        )
        if called is not None and (on_client := overridden(called, "on_client")):
            on_client([url for each in self._topology.shards for url in (each.url, *each.members)])
        self._receiver = Receiver(self._links, self._topology)
        self._begin_sending(self._links, Outbox(limits, Producers(producer), called), codec)
        self._fetched = {}
        self._task_topics = {}
        self._random = Random()
        ThreadWorker.__init__(
            self,
            lambda consumer: [LinkPort(link, consumer) for link in self._links],
            hooks=called,
        )

    @classmethod
    def from_env(cls, **options: Unpack[EnvironmentOptions]) -> Self:
        """A client of the brokers in DELAYLOG_URL, with the token and TLS files of other variables.

        Unlike a client without endpoints, it raises ValueError if the variable is absent.
        """
        endpoints = endpoints_from(os.environ)
        if not endpoints:
            raise ValueError(f"{URL} is not set: give the address of a broker in it")
        return cls(*endpoints, **options)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        interrupted = isinstance(error, INTERRUPTS)
        try:
            self.close(within=timedelta(seconds=INTERRUPTED_S) if interrupted else None)
        except ClientError:
            # The error of the block matters more than the sends that failed because of it.
            if error is None:
                raise
            log.exception("while closing after an error")

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections cannot move to another process."""
        raise TypeError("a Client cannot be pickled: make one in each process")

    def __repr__(self) -> str:
        return f"Client({', '.join(repr(shard.name) for shard in self.shards)})"

    def close(self, *, within: timedelta | None = None) -> None:
        """Close the client: stop its consumers, send queued messages, return unclaimed leases.

        Queued messages are sent for `within` at most (None: `retry_for`). If the `with`
        block is left by Ctrl-C or by cancellation, they get two seconds. Messages that were
        received but not yet returned to the caller go back to the broker. Then the connections are
        closed, and calls in progress raise AnswerLost. SendFailed reports failed sends whose
        result the program never read. Closing twice has no effect.
        """
        within_s = duration_s("within", within, or_zero=True)
        try:
            try:
                self.stop()
            finally:
                failed = self._end_sending(within_s)
        finally:
            self._end_loops()
            self._receiver.close()
            for link in self._links:
                link.close()
        if failed is not None:
            raise failed

    @property
    def shards(self) -> Sequence[Shard]:
        """The shards, in the order of the arguments."""
        return self._topology.shards

    @property
    def timeout_s(self) -> float:
        """The time limit of calls that give none, in seconds."""
        return self._links[0].transport.times.timeout_s

    @property
    def mismatched(self) -> int:
        """How many messages `exact_tags` has returned to the broker so far."""
        return sum(link.mismatched for link in self._links)

    def _check_open(self) -> None:
        self._links[0].transport.check_open()

    # Sending

    def send_columns(
        self,
        topic: str,
        bodies: Texts,
        *,
        shard: str | None = None,
        **columns: Unpack[BulkSendKeywords],
    ) -> SendAnswer:
        """Send many messages as numpy columns in one idempotent request; see `bulk.encode_send`.

        The request is retried until the time limit. Without a time the messages are due now. With
        several shards all rows go to one: the named shard, or any shard if no row has an id or a
        key (otherwise ValueError).
        """
        limit_s, given = split_send_limit(columns, self._timeout_s)
        given = or_now(given)
        has_home = given.get("ids") is not None or given.get("keys") is not None
        if shard is None and has_home and len(self._links) > 1:
            if self._topology.home("id") is not None:
                raise ValueError("rows with ids or keys have different homes: give shard=")
        order = self._topology.order() if shard is None else [self._topology.at(shard)]
        numbering = self._outbox.producers.take()
        try:
            given["producer"], given["sequence"] = numbering.producer, numbering.take()
            wire = encode_send(bodies, **given)
            return self._post_columns(topic, wire, order, limit_s)
        finally:
            self._outbox.producers.give_back(numbering)

    def _post_columns(
        self, topic: str, wire: bytes, order: Sequence[int], limit_s: float
    ) -> SendAnswer:
        ends_s = time.monotonic() + limit_s
        patience = Patience(limit_s, time.monotonic, self._random)
        settled: Link | None = None
        failure: ClientError | None = None
        while True:
            for link in [self._links[at] for at in order] if settled is None else [settled]:
                try:
                    left_s = max(ends_s - time.monotonic(), SHORTEST_S)
                    answer = link.post(topic, wire, limit_s=left_s)
                except NotReached as error:
                    failure = error
                except ClientError as error:
                    # This shard may have accepted the rows, so only this shard may be retried.
                    settled, failure = link, error
                    break
                else:
                    return replace(answer, shard=link.name)
            assert failure is not None, "there is a shard to ask"
            try:
                pause_s = patience.pause_s(failure)
            except ClientError as last:
                raise in_time(last, limit_s) from last
            sleep(pause_s)

    # Receiving and settling

    def receive(self, topic: str, **asked: Unpack[ReceiveKeywords]) -> list[Message]:
        """Lease up to `max` ready messages (1), waiting up to `wait` (0) for the first.

        Nobody else receives them for `lease` (None: the topic's default). The broker filters by
        `tags`; `exact_tags` also checks the tags in the client. With several shards the messages
        of the fastest ones are returned. Unreachable shards are skipped; NotReached is raised if
        no shard can be reached. After AnswerLost, messages that the call may have leased are
        delivered again when the lease ends; a single broker is not asked again.
        """
        wanted, how_much = Wanted.split(topic, asked)
        return self._receiver.receive(wanted, **how_much)

    def _deliveries(self, topic: str, members: ReceiveKeywords) -> Polls:
        from delaylog.client._sync.streams import deliveries

        return deliveries(super()._deliveries(topic, members), self._links, topic, members)

    def _settle(
        self,
        verb: Verb,
        messages: ToSettle,
        **times: Any,
    ) -> list[Settled]:
        check_keywords(verb, times, SettleTimes)
        found = shares_of(messages)
        said: list[tuple[Share, Sequence[Settled] | ClientError]] = []
        for share in found:
            link = self._links[self._topology.at(share.batch.shard)]
            try:
                results = link.settle(verb, share, **times)
            except ClientError as error:
                said.append((share, error))
            else:
                said.append((share, results))
                if verb != "begin" and not times.get("lease_ms"):
                    share.ended(results)
        return joined(sum(len(share.rows) for share in found), said)
