"""Sends, receives and settles of an embedded broker, as coroutines that `waits/driving.py` runs.

Names, arguments, results and exceptions are those of `Client`. All other calls go to the handlers
of the API (`carrying`), so each call has one implementation.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable
from typing import Any, TypeAlias, TypeVar, Unpack

from delaylog.broker.calls.shapes import ReceiveCall, parse_receive
from delaylog.broker.calls.turn.writes import Settling
from delaylog.broker.embedded import hot
from delaylog.broker.embedded.carrying import carry
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.broker.embedded.opened import Face
from delaylog.broker.embedded.waits.steps import Step
from delaylog.client.calls.call import Call
from delaylog.client.calls.places import Places
from delaylog.client.errors import IdInUse
from delaylog.client.holding import HANDLED, noted
from delaylog.client.hooks import headers_with, overridden
from delaylog.client.keywords import ManySendKeywords, OneSendKeywords, TimeLimit
from delaylog.client.message import MessageBatch
from delaylog.client.models import NewMessage, Sent, Settled
from delaylog.client.sending.row import Row, check_several, checked_row, row_of
from delaylog.client.shards.receiving import HowMuch, Wanted
from delaylog.client.shards.settling import ToSettle, Verb, shares_of
from delaylog.client.wire.bulk import Texts, encode_send, or_now
from delaylog.client.wire.bulk_answers import SendAnswer
from delaylog.client.wire.durations import limit_of, split_limit
from delaylog.client.wire.process_name import process_name

T = TypeVar("T")
Steps: TypeAlias = Coroutine[Step, None, T]


class EmbeddedCalls:
    """Calls on one node, in one namespace.

    Time limits are checked and have no effect: what a call waits for is the disk of this machine.
    """

    def __init__(self, node: EmbeddedNode, face: Face) -> None:
        self.node = node
        self.namespace = face.namespace
        self.codec = face.codec
        self.places = Places(face.namespace)
        self._hooks = face.hooks
        self._on_sent = face.hooks and overridden(face.hooks, "on_sent")
        self._on_send_failed = face.hooks and overridden(face.hooks, "on_send_failed")
        nothing: dict[str, Any] = {}
        self._last_receive = (nothing, parse_receive(nothing, node.engine.limits))
        """The members of the last receive, and the call parsed from them."""

    # ------------------------------------------------------------------ send

    def send(
        self,
        topic: str,
        body: bytes | str | None = None,
        *,
        wait: bool = True,
        **fields: Unpack[OneSendKeywords],
    ) -> Steps[Sent]:
        """Send one message. The arguments are checked at once, before the coroutine runs."""
        _, given = split_limit(fields)
        key = hot.checked_key(self.namespace, topic)
        if self._hooks is not None:
            given["headers"] = headers_with(self._hooks, topic, given.get("headers"))
        return self._send_one(key, checked_row(body, given, self.codec), wait)

    async def _send_one(self, key: tuple[str, str], row: Row, wait: bool) -> Sent:
        sent = (await self._rows_sent(key, [row], wait=wait))[0]
        if sent.result == "rejected":
            raise IdInUse(sent)
        return noted(key[1], sent)

    def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[ManySendKeywords],
    ) -> Steps[list[Sent]]:
        """Send many messages: all of them, or none if one is refused."""
        key = hot.checked_key(self.namespace, topic)
        check_several(messages, "send_many")
        _, of_all = split_limit(defaults)
        if self._hooks is not None:
            of_all["headers"] = headers_with(self._hooks, topic, of_all.get("headers"))
        rows = [row_of(message, of_all, self.codec) for message in messages]
        return self._send_rows(key, rows)

    async def _send_rows(self, key: tuple[str, str], rows: list[Row]) -> list[Sent]:
        sent = await self._rows_sent(key, rows)
        return [noted(key[1], each) for each in sent] if HANDLED.get() else sent

    async def _rows_sent(
        self, key: tuple[str, str], rows: list[Row], *, wait: bool = True
    ) -> list[Sent]:
        """Send messages, and tell the hooks."""
        if self._hooks is None:
            return await hot.send_rows(self.node, key, rows, wait=wait)
        began_s = time.monotonic()
        try:
            sent = await hot.send_rows(self.node, key, rows, wait=wait)
        except Exception as error:
            if self._on_send_failed:
                self._on_send_failed(key[1], len(rows), error, time.monotonic() - began_s)
            raise
        if self._on_sent:
            accepted = sum(each.result != "rejected" for each in sent)
            self._on_sent(key[1], accepted, time.monotonic() - began_s)
        return sent

    def send_columns(
        self, topic: str, bodies: Texts, *, wait: bool = True, **columns: Any
    ) -> Steps[SendAnswer]:
        """Send many messages as columns, in one frame."""
        _, columns = split_limit(columns)
        wire = encode_send(bodies, **or_now(columns))
        return hot.send_wire(self.node, hot.checked_key(self.namespace, topic), wire, wait=wait)

    # ------------------------------------------------------------------ receive and settle

    async def receive(self, wanted: Wanted, how_much: HowMuch) -> MessageBatch:
        """Lease ready messages, or wait for some."""
        members = {
            "max": how_much["max"],
            "wait_ms": how_much["wait_ms"],
            "lease_ms": how_much["lease_ms"],
            "group": wanted.group,
            "tags": list(wanted.tags) or None,
            "tags_mode": wanted.tags_mode,
            "ids": list(wanted.ids) or None,
            "begin": wanted.begin,
            "consumer": wanted.consumer or process_name(),
        }
        key = self.namespace, wanted.topic
        columns = await hot.receive_batch(self.node, key, self._parsed(members))
        return MessageBatch(columns, wanted.topic, wanted.group)

    def _parsed(self, members: dict[str, Any]) -> ReceiveCall:
        """Parse a receive, or return the last one if it had the same members. Raises Problem."""
        last, call = self._last_receive
        # Compare types too: True equals 1, but is not a valid number.
        if list(map(type, members.values())) != list(map(type, last.values())) or members != last:
            call = parse_receive(members, self.node.engine.limits)
            self._last_receive = (members, call)
        return call

    def settle(
        self,
        verb: Verb,
        messages: ToSettle,
        *,
        delay_ms: int | None = None,
        lease_ms: int | None = None,
        reason: str | None = None,
        wait: bool = True,
        **limits: Unpack[TimeLimit],
    ) -> Steps[list[Settled]]:
        """Ack, nack, reject, extend or begin messages."""
        limit_of(verb, limits)
        wanted, parts = Settling(verb, delay_ms, lease_ms, reason or ""), shares_of(messages)
        # A `begin` is as durable as the lease that it changes.
        wait = wait and verb != "begin"
        return hot.settle(self.node, self.namespace, wanted, parts, wait=wait)

    async def flush(self) -> None:
        """Wait until everything appended so far is as durable as the fsync option says."""
        await self.node.durable(self.node.engine.state.position)

    def carry(self, call: Call[T]) -> Steps[T]:
        """Run any call of the API by its handler."""
        return carry(self.node, call)
