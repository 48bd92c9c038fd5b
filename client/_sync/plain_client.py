"""PlainClient: the broker's HTTP API for programs with threads, one method per call.

A call that may have been carried out raises its failure: only the caller knows whether a retry is
safe. (It is for a send with an idempotency key or a producer and sequence, and is not for a plain
send.) `exchange` describes how a call finds the leader of a cluster, and what is retried.
Client adds batches, retries, several brokers and typed answers.

Made from client/_async/plain_client.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, Unpack

from delaylog.client._sync.broker_calls import BrokerCalls
from delaylog.client._sync.carried import carried
from delaylog.client._sync.settle_calls import of_receipts
from delaylog.client.calls import control, messages, verbs
from delaylog.client.calls.call import Places
from delaylog.client.keywords import SettleTimes
from delaylog.client.options import ConnectionOptions, split_connection
from delaylog.client.shards.settlements import Verb
from delaylog.client.shards.sharding import Shard
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.endpoints import checked_url
from delaylog.client.wire.leader_route import LeaderRoute
from delaylog.client.wire.times import duration_s

if TYPE_CHECKING:
    from delaylog.client._sync.transport import Transport


class PlainClient(BrokerCalls):
    """A client of one broker at `base_url` and one namespace.

    Use it as `with PlainClient(url) as client:`. `members` are further nodes of the
    broker's cluster, which `base_url` may name too, separated by commas; nodes that are not listed
    are learned from a listed one.
    """

    def __init__(
        self,
        base_url: str,
        *,
        namespace: str = "default",
        members: Sequence[str] = (),
        failover: timedelta | None = None,
        reconnect: timedelta | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        # Imported here: an embedded broker uses this package and needs no HTTP library.
        from delaylog.client._sync.transport import Transport

        self._places = Places(namespace)
        credentials, options = split_connection(connection)
        shard = Shard.of(base_url)
        route = LeaderRoute(shard.url, (*shard.members, *map(checked_url, members)), credentials)
        self._transport = Transport(
            route,
            failover_s=duration_s("failover", failover, or_zero=True),
            reconnect_s=duration_s("reconnect", reconnect, or_zero=True),
            **options,
        )

    @classmethod
    def on(cls, transport: Transport, places: Places) -> Self:
        """A client that shares the connections of another; closing either closes them."""
        client = cls.__new__(cls)
        client._places = places
        client._transport = transport
        return client

    def __enter__(self) -> Self:
        self._transport.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Calls in progress raise AnswerLost."""
        self._transport.close()

    # Sending

    send = carried(messages.send)
    send_many = carried(messages.send_many)
    send_bulk = carried(messages.send_columns)

    # Receiving and settling

    receive = carried(messages.receive)
    ack_and_receive = carried(messages.ack_and_receive)
    receive_bulk = carried(messages.receive_columns)
    peek = carried(messages.peek)

    ack = of_receipts(verbs.ack)
    nack = of_receipts(verbs.nack)
    reject = of_receipts(verbs.reject)
    release = of_receipts(verbs.release)
    extend = of_receipts(verbs.extend)
    begin_attempts = of_receipts(verbs.begin)

    def _settle(self, topic: str, verb: Verb, receipts: Sequence[str], **times: Any) -> list[str]:
        check_keywords(verb, times, SettleTimes)
        return self._carry(messages.settle(self._places, topic, verb, receipts, **times))

    settle_forced = carried(messages.settle_forced)
    settle_bulk = carried(messages.settle_columns)

    # One message, many messages

    get = carried(control.get)
    page = carried(control.messages_page)
    dead = carried(control.dead_page)
    dead_reasons = carried(control.dead_reasons)
    cancel = carried(control.cancel)
    reschedule = carried(control.reschedule)
    replay = carried(control.replay)
    change_bulk = carried(control.change_columns)
