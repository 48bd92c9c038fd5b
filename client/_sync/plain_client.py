"""PlainClient: the broker's native HTTP API for programs with threads, one method a call.

The one rule: a call is carried out once, or its failure is shown, since only the caller knows
whether a repeat is safe (a send with a key, or a producer and sequence, is, a plain one is not).
How a call finds the leader of a cluster, and what is repeated meanwhile, is said in `exchanging`.
Client stands above it: batches, retries, several brokers, typed answers.

Made from client/_async/plain_client.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, Unpack

from delaylog.client._sync.broker_calls import BrokerCalls
from delaylog.client._sync.carried import carried
from delaylog.client.calls import control, messages
from delaylog.client.calls.places import Places
from delaylog.client.options import ConnectionOptions
from delaylog.client.wire.exchanging import FAILOVER_S
from delaylog.client.wire.leader_route import LeaderRoute

if TYPE_CHECKING:
    from delaylog.client._sync.transport import Transport


class PlainClient(BrokerCalls):
    """One broker at `base_url`, one namespace.

    Use it as `with PlainClient(url) as client:`. `members` are other nodes of its
    cluster; those that are not named it asks a named one for.
    """

    def __init__(
        self,
        base_url: str,
        *,
        namespace: str = "default",
        members: Sequence[str] = (),
        failover_s: float = FAILOVER_S,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        # Here, since only a client of a broker elsewhere needs what carries HTTP.
        from delaylog.client._sync.transport import Transport

        self._places = Places(namespace)
        self._transport = Transport(
            LeaderRoute(base_url, members), failover_s=failover_s, **connection
        )

    @classmethod
    def on(cls, transport: Transport, places: Places) -> Self:
        """A client on connections that another one has; closing either closes them."""
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
        """Drop the connections. Calls under way end with AnswerLost."""
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

    def ack(self, topic: str, receipts: Sequence[str]) -> list[str]:
        """Settle for good. Per receipt: done, gone (the lease ended first) or unknown."""
        return self._carry(messages.settle(self._places, topic, "ack", receipts))

    def nack(
        self, topic: str, receipts: Sequence[str], *, delay_ms: int | None = None
    ) -> list[str]:
        """Give back, to be delivered again after `delay_ms`, or the topic's backoff if absent."""
        return self._carry(
            messages.settle(self._places, topic, "nack", receipts, delay_ms=delay_ms)
        )

    def extend(self, topic: str, receipts: Sequence[str], *, lease_ms: int) -> list[str]:
        """Hold the leases `lease_ms` from now; 0 gives the messages back."""
        return self._carry(
            messages.settle(self._places, topic, "extend", receipts, lease_ms=lease_ms)
        )

    settle_forced = carried(messages.settle_forced)
    settle_bulk = carried(messages.settle_columns)

    # One message, many messages

    get = carried(control.get)
    page = carried(control.messages_page)
    dead = carried(control.dead_page)
    cancel = carried(control.cancel)
    reschedule = carried(control.reschedule)
    replay = carried(control.replay)
    change_bulk = carried(control.change_columns)
