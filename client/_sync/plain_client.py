"""PlainClient: the broker's native HTTP API for programs with threads, one method a call.

The one rule: a call is carried out once, or its failure is shown, since only the caller knows
whether a repeat is safe (a send with a key, or a producer and sequence, is, a plain one is not).
How a call finds the leader of a cluster, and what is repeated meanwhile, is said in `exchanging`.
Client stands above it: batches, retries, several brokers, typed answers.

Made from client/_async/plain_client.py by `make twins`: change that one.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from delaylog.client._sync.broker_calls import BrokerCalls
from delaylog.client.bulk import (
    ChangeAnswer,
    Numbers,
    ReceivedBatch,
    SendAnswer,
    SettleAnswer,
    Texts,
)
from delaylog.client.calls import control, messages
from delaylog.client.calls.places import Places
from delaylog.client.exchanging import CALL_TIMEOUT_S, FAILOVER_S
from delaylog.client.leader_route import LeaderRoute
from delaylog.client.models import Received, Sent

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
        token: str | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        connections_max: int = 100,
        members: Sequence[str] = (),
        failover_s: float = FAILOVER_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        # Here, since only a client of a broker elsewhere needs what carries HTTP.
        from delaylog.client._sync.transport import Transport

        self._places = Places(namespace)
        self._transport = Transport(
            LeaderRoute(base_url, members),
            token=token,
            call_timeout_s=call_timeout_s,
            connections_max=connections_max,
            failover_s=failover_s,
            tls=tls,
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections. Calls under way end with AnswerLost."""
        self._transport.close()

    # Sending

    def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> Sent:
        """Send one message; `members` are the optional ones of the API (id, key, tags, …)."""
        call = messages.send(
            self._places,
            topic,
            body,
            deliver_at_ms=deliver_at_ms,
            delay_ms=delay_ms,
            idempotency_key=idempotency_key,
            **members,
        )
        return self._carry(call)

    def send_many(self, topic: str, shapes: Sequence[Mapping[str, Any]]) -> list[Sent]:
        """Send an array of JSON shapes, judged whole for syntax and per item for merging."""
        return self._carry(messages.send_many(self._places, topic, shapes))

    def send_bulk(
        self,
        topic: str,
        bodies: Texts,
        *,
        deliver_at_ms: Numbers | None = None,
        delay_ms: Numbers | None = None,
        **columns: Any,
    ) -> SendAnswer:
        """Send many messages as columns; see `encode_send` for the optional ones.

        With `producer` and `sequence` the call may be repeated after AnswerLost: the broker then
        answers what it answered first and adds nothing.
        """
        call = messages.send_columns(
            self._places, topic, bodies, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms, **columns
        )
        return self._carry(call)

    # Receiving and settling

    def receive(
        self,
        topic: str,
        *,
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        **members: Any,
    ) -> Received:
        """Lease up to `max` ready messages, waiting up to `wait_ms` for the first."""
        return self._carry(
            messages.receive(
                self._places, topic, max=max, wait_ms=wait_ms, lease_ms=lease_ms, **members
            )
        )

    def receive_bulk(
        self,
        topic: str,
        *,
        max: int = 1000,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        **members: Any,
    ) -> ReceivedBatch:
        """Lease up to `max` ready messages as columns, all under one lease."""
        return self._carry(
            messages.receive_columns(
                self._places, topic, max=max, wait_ms=wait_ms, lease_ms=lease_ms, **members
            )
        )

    def peek(self, topic: str, *, max: int = 1, **members: Any) -> list[dict[str, Any]]:
        """What is ready now, without leasing it."""
        answer = self._carry(messages.peek(self._places, topic, max=max, **members))
        return list(answer["messages"])

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

    def settle_forced(self, topic: str, verb: str, ids: Sequence[str], **members: Any) -> list[str]:
        """ack, nack or extend (`verb`) by bare ids, whoever has the messages."""
        return self._carry(messages.settle_forced(self._places, topic, verb, ids, **members))

    def ack_bulk(
        self,
        topic: str,
        lease: int,
        refs: Numbers | None = None,
        *,
        except_refs: Numbers | None = None,
    ) -> SettleAnswer:
        """Settle refs of a lease, or without refs all of it (but `except_refs`)."""
        return self._carry(
            messages.settle_columns(
                self._places, topic, "ack", lease, refs, except_refs=except_refs
            )
        )

    def nack_bulk(
        self,
        topic: str,
        lease: int,
        refs: Numbers | None = None,
        *,
        except_refs: Numbers | None = None,
        delay_ms: int | None = None,
    ) -> SettleAnswer:
        """Give refs of a lease back, or without refs all of it (but `except_refs`)."""
        call = messages.settle_columns(
            self._places, topic, "nack", lease, refs, except_refs=except_refs, delay_ms=delay_ms
        )
        return self._carry(call)

    def extend_bulk(
        self, topic: str, lease: int, refs: Numbers | None = None, *, lease_ms: int
    ) -> SettleAnswer:
        """Hold refs of a lease, or all of it, `lease_ms` from now."""
        return self._carry(
            messages.settle_columns(self._places, topic, "extend", lease, refs, lease_ms=lease_ms)
        )

    # One message, many messages

    def get(
        self, topic: str, message_id: str, *, life: bool = False, group: str | None = None
    ) -> dict[str, Any]:
        """The message with its state as a group sees it; `life` adds its steps.

        NotFound when it is not known.
        """
        return self._carry(control.get(self._places, topic, message_id, life=life, group=group))

    def page(self, topic: str, **query: str | int | bool | None) -> dict[str, Any]:
        """A page of the topic's messages; pass its `cursor` for the next one until it is None."""
        return self._carry(control.page(self._places, topic, "messages", **query))

    def dead(self, topic: str, **query: str | int | bool | None) -> dict[str, Any]:
        """A page of the topic's dead letters, likewise."""
        return self._carry(control.page(self._places, topic, "dead", **query))

    def cancel(self, topic: str, message_id: str, *, force: bool = False) -> dict[str, Any]:
        """Cancel before delivery. TooLate (with `state`), NotFound."""
        return self._carry(control.cancel(self._places, topic, message_id, force=force))

    def reschedule(
        self,
        topic: str,
        message_id: str,
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        priority: int | None = None,
    ) -> dict[str, Any]:
        """Change when (0 = now) or how urgently it is delivered; fails as `cancel` does."""
        call = control.reschedule(
            self._places,
            topic,
            message_id,
            deliver_at_ms=deliver_at_ms,
            delay_ms=delay_ms,
            priority=priority,
        )
        return self._carry(call)

    def cancel_bulk(
        self, topic: str, *, refs: Numbers | None = None, ids: Texts | None = None
    ) -> ChangeAnswer:
        """Cancel many, with a result each."""
        return self._carry(
            control.change_columns(self._places, topic, "cancel", refs=refs, ids=ids)
        )

    def reschedule_bulk(
        self,
        topic: str,
        *,
        deliver_at_ms: Numbers,
        refs: Numbers | None = None,
        ids: Texts | None = None,
    ) -> ChangeAnswer:
        """Give many a new time, with a result each."""
        call = control.change_columns(
            self._places, topic, "reschedule", refs=refs, ids=ids, deliver_at_ms=deliver_at_ms
        )
        return self._carry(call)

    def replay_bulk(
        self,
        topic: str,
        *,
        refs: Numbers | None = None,
        ids: Texts | None = None,
        deliver_at_ms: Numbers | None = None,
    ) -> ChangeAnswer:
        """Let many dead messages live again, at a time or now, with a result each."""
        call = control.change_columns(
            self._places, topic, "replay", refs=refs, ids=ids, deliver_at_ms=deliver_at_ms
        )
        return self._carry(call)

    def replay(
        self,
        topic: str,
        ids: Sequence[str],
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """Let dead messages live again. Per id a result: done, too_late (with state), unknown."""
        call = control.change_many(
            self._places, topic, "replay", ids, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms
        )
        return self._carry(call)
