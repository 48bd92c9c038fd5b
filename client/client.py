"""Client: delayed messages for programs with threads, on one broker or on several as shards.

The one rule: what a method says it did is on the broker's disk, and what it cannot know it says as
an error. Everything that can be judged without the broker is refused at once, by ValueError or
TypeError, and nothing is sent.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from delaylog.client.bulk import Numbers, SendAnswer, Texts, encode_send
from delaylog.client.calls import messages as message_calls
from delaylog.client.calls.places import Places
from delaylog.client.control_calls import ControlCalls
from delaylog.client.errors import ClientError, NotReached
from delaylog.client.exchanging import CALL_TIMEOUT_S
from delaylog.client.leader_route import LeaderRoute
from delaylog.client.link import Link
from delaylog.client.message import Message
from delaylog.client.models import MessageInfo, Settled
from delaylog.client.patience import Patience
from delaylog.client.plain_sync_client import PlainSyncClient
from delaylog.client.receiver import Receiver
from delaylog.client.receiving import Wanted
from delaylog.client.settling import Share, Verb, joined, listed, shares
from delaylog.client.sharding import ByKey, Shard, Sharding, Topology
from delaylog.client.sync_transport import SyncTransport
from delaylog.client.topic_calls import TopicCalls
from delaylog.client.transaction import Transaction

T = TypeVar("T")
SEQUENCES_A_PRODUCER: Final = 32
"""Calls of `send_columns` under one producer's name. A broker keeps the last 64 sequences of a
producer, so however many are under way, none falls out of its memory."""


class Client(ControlCalls, TopicCalls):
    """A client of one broker, one cluster, or several of these as shards.

    `"http://a:1"` is a broker, `"http://a:1,http://b:1"` are members of one cluster, several
    arguments are shards. Use it as `with Client(…) as client:`, or call `close`.
    """

    def __init__(
        self,
        *endpoints: str | Shard,
        namespace: str = "default",
        token: str | None = None,
        zone: str | None = None,
        sharding: Sharding | None = None,
        producer: str | None = None,
        retry_for_s: float = 60.0,
        call_timeout_s: float = CALL_TIMEOUT_S,
        connections_max: int = 100,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`zone` is where this client stands, `sharding` is by key unless it is given.

        `producer` names this client to brokers, so that what it repeats is added once; one name,
        one living client. It is made up unless it is given. `retry_for_s` is how long sends are
        repeated. `call_timeout_s` is what one exchange may take beyond what it asks to wait.
        """
        self._topology = Topology(endpoints, sharding or ByKey(), zone)
        self._places = Places(namespace)
        self.producer = producer or uuid4().hex
        self._retry_for_s = retry_for_s
        self._links = tuple(
            Link(
                shard,
                self._places,
                SyncTransport(
                    LeaderRoute(shard.url, shard.members),
                    token=token,
                    call_timeout_s=call_timeout_s,
                    connections_max=connections_max,
                    tls=tls,
                ),
            )
            for shard in self._topology.shards
        )
        self._receiver = Receiver(self._links, self._topology)
        self._random = Random()
        self._column_sends = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({', '.join(repr(shard.name) for shard in self.shards)})"

    def close(self) -> None:
        """Give back what was received and not handed out, then drop the connections.

        Calls under way end with AnswerLost. Closing twice is fine.
        """
        self._receiver.close()
        for link in self._links:
            link.close()

    @property
    def shards(self) -> Sequence[Shard]:
        """The shards, in the order of the arguments."""
        return self._topology.shards

    @property
    def mismatched(self) -> int:
        """Messages that exact tags gave back so far."""
        return sum(link.mismatched for link in self._links)

    def broker(self, shard: str | None = None) -> PlainSyncClient:
        """Calls about one broker, answered as the API's JSON; it lives as long as this client.

        ValueError where there are several shards and none is named.
        """
        link = self._links[self._topology.one(shard, "broker()")]
        return PlainSyncClient.on(link.transport, self._places)

    def transaction(
        self, transaction: str | None = None, *, shard: str | None = None, ttl_ms: int | None = None
    ) -> Transaction:
        """Messages that become visible together, in one broker.

        `with client.transaction() as together:` commits at its end, or aborts when it is left
        by an exception.
        """
        return Transaction(self.broker(shard), transaction, ttl_ms)

    # Sending

    def send_columns(
        self,
        topic: str,
        bodies: Texts,
        *,
        deliver_at_ms: Numbers | None = None,
        delay_ms: Numbers | None = None,
        shard: str | None = None,
        **columns: Any,
    ) -> SendAnswer:
        """Send numpy columns, see `bulk.encode_send`, as one request that adds its rows once.

        It is repeated for `retry_for_s`. Without a time it is now. With several shards all rows go
        to one: the named one, or any where none of them has a home (ValueError otherwise).
        """
        if deliver_at_ms is None and delay_ms is None:
            delay_ms = 0
        has_home = columns.get("ids") is not None or columns.get("keys") is not None
        if shard is None and has_home and len(self._links) > 1:
            if self._topology.home("id") is not None:
                raise ValueError("rows with ids or keys have different homes: give shard=")
        number = next(self._column_sends)
        wire = encode_send(
            bodies,
            deliver_at_ms=deliver_at_ms,
            delay_ms=delay_ms,
            producer=f"{self.producer}-columns-{number // SEQUENCES_A_PRODUCER}",
            sequence=number % SEQUENCES_A_PRODUCER,
            **columns,
        )
        order = self._topology.order() if shard is None else [self._topology.at(shard)]
        patience = Patience(self._retry_for_s, time.monotonic, self._random)
        settled: Link | None = None
        while True:
            for at in order:
                link = settled or self._links[at]
                try:
                    answer = link.post(topic, wire)
                except NotReached as error:
                    failure: ClientError = error
                except ClientError as error:
                    # It may have come through there, so it is repeated there and nowhere else.
                    settled, failure = link, error
                    break
                else:
                    return replace(answer, shard=link.name)
            time.sleep(patience.pause_s(failure))

    # Receiving and settling

    def receive(
        self,
        topic: str,
        *,
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        tags_mode: str = "any",
        exact_tags: bool = False,
        ids: Sequence[str] = (),
    ) -> list[Message]:
        """Lease up to `max` ready messages, waiting up to `wait_ms` for the first.

        They are yours for `lease_ms` (None: what the topic says). `tags` are looked at by the
        broker; with `exact_tags` once more here. From several shards it is whatever comes first;
        one that cannot be reached is passed over, and NotReached is raised when none can.
        """
        if isinstance(tags, str) or isinstance(ids, str):
            raise TypeError("tags and ids are lists of texts")
        wanted = Wanted(topic, group, tuple(tags), tags_mode, exact_tags, tuple(ids))
        return self._receiver.receive(wanted, max=max, wait_ms=wait_ms, lease_ms=lease_ms)

    def peek(
        self,
        topic: str,
        *,
        max: int = 1,
        group: str | None = None,
        tags: Sequence[str] = (),
        tags_mode: str = "any",
        ids: Sequence[str] = (),
    ) -> list[MessageInfo]:
        """What is ready now, without leasing it; of several shards one after the other."""
        found: list[MessageInfo] = []
        for at in self._topology.order():
            link = self._links[at]
            members = {"tags": list(tags), "tags_mode": tags_mode} if tags else {}
            members |= {"ids": list(ids)} if ids else {}
            members |= {"group": group} if group is not None else {}
            call = message_calls.peek(self._places, topic, max=max - len(found), **members)
            answer = link.carry(call)
            found += [MessageInfo.of(each, link.name) for each in answer["messages"]]
            if len(found) >= max:
                break
        return found

    def ack(self, messages: Message | Iterable[Message]) -> list[Settled]:
        """They are done with: a result for each.

        Where calls fail after they were repeated: the error itself, or SettleFailed of several.
        """
        return self._settle("ack", messages)

    def nack(
        self, messages: Message | Iterable[Message], *, delay_ms: int | None = None
    ) -> list[Settled]:
        """They failed, and come again after `delay_ms` (None: the backoff); fails as `ack` does."""
        return self._settle("nack", messages, delay_ms=delay_ms)

    def extend(self, messages: Message | Iterable[Message], *, lease_ms: int) -> list[Settled]:
        """They are yours for `lease_ms` from now; 0 gives them back. Fails as `ack` does."""
        return self._settle("extend", messages, lease_ms=lease_ms)

    def settle_ids(
        self,
        topic: str,
        verb: Verb,
        ids: Sequence[str],
        *,
        delay_ms: int | None = None,
        lease_ms: int | None = None,
        group: str | None = None,
        shard: str | None = None,
    ) -> list[Settled]:
        """`ack`, `nack` or `extend` by bare ids, whoever has the messages.

        `unknown` is an id that no shard knows.
        """
        results = [Settled.UNKNOWN] * len(ids)
        for at, asked in self._topology.rounds(ids, shard):
            left = [place for place in asked if results[place] is Settled.UNKNOWN]
            if not left:
                continue
            call = message_calls.settle_forced(
                self._places,
                topic,
                verb,
                [ids[place] for place in left],
                delay_ms=delay_ms,
                lease_ms=lease_ms,
                group=group,
            )
            answer = self._links[at].carry(call)
            for place, result in zip(left, answer, strict=True):
                results[place] = Settled(result)
        return results

    def _settle(
        self,
        verb: Verb,
        messages: Message | Iterable[Message],
        *,
        delay_ms: int | None = None,
        lease_ms: int | None = None,
    ) -> list[Settled]:
        found = listed(messages)
        said: list[tuple[Share, Sequence[Settled] | ClientError]] = []
        for share in shares(found):
            link = self._links[self._topology.at(share.batch.shard)]
            try:
                results = link.settle(verb, share, delay_ms=delay_ms, lease_ms=lease_ms)
            except ClientError as error:
                said.append((share, error))
            else:
                said.append((share, results))
        return joined(len(found), said)
