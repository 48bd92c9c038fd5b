"""Calls of an embedded broker, as coroutines that run on the node's thread, without a socket.

Names, arguments and results of sends, receives and settles are those of `Client`. Arguments are
checked by the code of clients and of servers; the caller's columns are passed on to the engine,
without a request in between. All other calls are a `Call`: a method, a path and a body. They go to
the handlers of `broker/calls` that HTTP uses too, so an embedded broker checks and answers as a
server does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, Unpack

import numpy as np

from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.context import JSON, BufferedContext
from delaylog.broker.calls.forms.deliveries import COLUMNS, NOTHING, bulk_fields
from delaylog.broker.calls.handlers.messages import RESULT_NAMES
from delaylog.broker.calls.routes import resolve
from delaylog.broker.calls.shapes import ReceiveCall, parse_receive
from delaylog.broker.calls.turn.askers import batch_of, frames
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.calls.turn.settles import outcomes
from delaylog.broker.calls.turn.writes import Settling, send_batch, send_parts
from delaylog.broker.embedded.node import EmbeddedNode, Steps
from delaylog.broker.embedded.opened import Face
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.model import SendResult
from delaylog.broker.engine.send.sends import check_batch
from delaylog.client.calls.call import Call, Places
from delaylog.client.hooks import headers_with, overridden
from delaylog.client.keywords import (
    ManySendKeywords,
    OneSendKeywords,
    QueuedSendKeywords,
    TimeLimit,
)
from delaylog.client.message import MessageBatch
from delaylog.client.models import NewMessage, Sent, Settled
from delaylog.client.sending.batch import (
    Row,
    check_several,
    checked_row,
    is_relative,
    merge_of,
    row_of,
)
from delaylog.client.shards.receives import HowMuch, Wanted, process_name
from delaylog.client.shards.settlements import Share, ToSettle, Verb, joined, shares_of
from delaylog.client.wire.bulk import (
    SendAnswer,
    Texts,
    all_of,
    column_of,
    encode_send,
    or_now,
    received,
)
from delaylog.client.wire.checks import check_topic
from delaylog.client.wire.times import limit_of, split_limit
from delaylog.contract.calls.shapes import BACK_MS, EXTEND_MS, REASON
from delaylog.contract.calls.table import OF_ACCESS
from delaylog.contract.calls.targets import OF_TARGETS
from delaylog.contract.message_fields import DELAY_MS
from delaylog.contract.times import delay_fault
from delaylog.storage.layout import ref_to_id
from delaylog.storage.messages.batch import Single, decode_send

# ------------------------------------------------------------------------ calls of the handlers

OF_SERVERS: Final = frozenset(
    {*(call.name for call in (*OF_ACCESS, *OF_TARGETS)), "listAllTargets", "reload", "stream"}
)
"""Calls that only a broker with other callers than its own program can answer, or that pushes."""
Decoded = TypeVar("Decoded")


async def carry(node: EmbeddedNode, call: Call[Decoded]) -> Decoded:
    """Run a call. Raises Problem, or the errors of the engine and of storage."""
    headers = {
        **call.headers,
        "Content-Type": call.form.content_type or JSON,
        "Accept": call.form.accept or JSON,
    }
    answered = await answer_to(node, call.method, call.path, headers, call.body or b"")
    return call.decoded(answered.body)


async def answer_to(
    node: EmbeddedNode, method: str, path_qs: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    """The answer to a request for a path with its query. Raises as `carry` does."""
    path, _, query = path_qs.partition("?")
    route = resolve(path, method, node.engine.state.topics)
    if route.call.name in OF_SERVERS:
        raise Problem(
            "unknown",
            "an embedded broker has no principals, no streams and no files to read again, and "
            "pushes nothing",
        )
    ctx = BufferedContext(node, headers, query, body)
    ctx.about(route.call, route.topic_key, route.params)
    ctx.reads = route.call.reads
    if query and not route.call.query:
        ctx.query_values()
    answered = await route.handler(ctx)
    assert isinstance(answered, Answer), "no client of an embedded broker asks for a stream"
    return answered


# ------------------------------------------------------------------ sends, receives and settles

T = TypeVar("T")


class EmbeddedCalls:
    """Calls on one node, in one namespace.

    Time limits are checked and have no effect: what a call waits for is the disk of this machine.
    """

    def __init__(self, node: EmbeddedNode, face: Face) -> None:
        self._node = node
        self.namespace = face.namespace
        self.codec = face.codec
        self.places = Places(face.namespace)
        self._hooks = face.hooks
        self._on_sent = face.hooks and overridden(face.hooks, "on_sent")
        self._on_send_failed = face.hooks and overridden(face.hooks, "on_send_failed")
        nothing: dict[str, Any] = {}
        self._last_receive = (nothing, parse_receive(nothing, node.engine.limits))
        """The members of the last receive, and the call parsed from them."""

    # ------------------------------------------------------------------ on the caller's thread

    def row(
        self,
        topic: str,
        body: bytes | str | None,
        fields: OneSendKeywords | QueuedSendKeywords,
    ) -> Row:
        """One message. Raises TypeError, ValueError as a client."""
        _, given = split_limit(fields)
        check_topic(topic)
        if self._hooks is not None:
            given["headers"] = headers_with(self._hooks, topic, given.get("headers"))
        return checked_row(body, given, self.codec)

    def rows(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        defaults: ManySendKeywords,
    ) -> list[Row]:
        """Many messages. Raises TypeError, ValueError as a client."""
        check_topic(topic)
        check_several(messages, "send_many")
        _, of_all = split_limit(defaults)
        if self._hooks is not None:
            of_all["headers"] = headers_with(self._hooks, topic, of_all.get("headers"))
        return [row_of(message, of_all, self.codec) for message in messages]

    def heard(self, topic: str, sent: list[Sent], began_s: float) -> None:
        """Tell the hooks of a send."""
        if self._on_sent:
            accepted = sum(each.result != "rejected" for each in sent)
            self._on_sent(topic, accepted, time.monotonic() - began_s)

    def failed(self, topic: str, n: int, error: Exception, began_s: float) -> None:
        """Tell the hooks of a send that was refused."""
        if self._on_send_failed:
            self._on_send_failed(topic, n, error, time.monotonic() - began_s)

    # ------------------------------------------------------------------ send

    async def send_rows(self, topic: str, rows: Sequence[Row], *, wait: bool = True) -> list[Sent]:
        """Send messages: all of them, or none if one is refused.

        Each run of messages with the same `merge` becomes a frame. Raises EngineError.
        """
        node, key, limits = self._node, (self.namespace, topic), self._node.engine.limits
        if node.engine.housekeeping.crowded():
            await node.room()
        singles = [_single(row, item, limits.horizon_ms) for item, row in enumerate(rows)]
        parts = list(
            frames(singles, limits.request_bytes_max, limits.bulk_rows_max, lambda single: single)
        )
        if len(parts) > 1:
            now_ms = node.clock.now_ms()
            for part in parts:
                check_batch(node.engine.state, batch_of(part, now_ms), now_ms)
        out: list[Sent] = []
        for part in parts:
            out += _sent(part, send_parts(node, key, part))
        await self._safe(wait=wait)
        return out

    def send_columns(
        self, topic: str, bodies: Texts, *, wait: bool = True, **columns: Any
    ) -> Steps[SendAnswer]:
        """Send many messages as columns, in one frame."""
        _, columns = split_limit(columns)
        check_topic(topic)
        return self._send_wire(topic, encode_send(bodies, **or_now(columns)), wait=wait)

    async def _send_wire(self, topic: str, wire: bytes, *, wait: bool) -> SendAnswer:
        """Send a bulk body as one frame. Raises BatchError, EngineError."""
        node, limits = self._node, self._node.engine.limits
        if len(wire) > limits.request_bytes_max:
            raise Problem("too_large", f"a batch has at most {limits.request_bytes_max} bytes")
        batch = decode_send(wire, rows_max=limits.bulk_rows_max)
        if node.engine.housekeeping.crowded():
            await node.room()
        result = send_batch(node, (self.namespace, topic), batch, node.clock.now_ms())
        await self._safe(wait=wait)
        n, codes = batch.n, result.results
        return SendAnswer(
            n,
            column_of("refs", result.refs, "<i8", n),
            column_of("deliver_at_ms", result.deliver_at_ms, "<i8", n),
            all_of(codes, "<u1", n)
            if isinstance(codes, int)
            else column_of("result", codes, "<u1", n),
        )

    async def _safe(self, *, wait: bool) -> None:
        """Wait until everything appended is safe; without `wait`, only request the commit."""
        node = self._node
        if node.log_commits.written_is_safe:
            node.log_commits.commit_turn()
        elif not (wait or node.manual):
            # With a manual clock the next call commits, because that blocks the node.
            node.appended()
        if wait:
            await node.durable(node.engine.state.position)

    async def flush(self) -> None:
        """Wait until everything appended so far is as durable as the fsync option says."""
        await self._node.durable(self._node.engine.state.position)

    async def safe(self, position: int) -> None:
        """Wait until the log is safe up to `position`."""
        await self._node.durable(position)

    # ------------------------------------------------------------------ receive and settle

    async def receive(self, wanted: Wanted, how_much: HowMuch) -> MessageBatch:
        """Lease ready messages, or wait for some; the batch is empty if none came."""
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
        node, key = self._node, (self.namespace, wanted.topic)
        # A receive turns the wheel: it does not wait for the pace at which a server releases.
        node.run_due(unpaced=True)
        delivery = await long_poll(node, key, self._parsed(members)) or NOTHING
        columns = received(bulk_fields(delivery, COLUMNS, node.clock.now_ms()), delivery.count)
        return MessageBatch(columns, wanted.topic, wanted.group)

    def _parsed(self, members: dict[str, Any]) -> ReceiveCall:
        """Parse a receive, or return the last one if it had the same members. Raises Problem."""
        last, call = self._last_receive
        # Compare types too: True equals 1, but is not a valid number.
        if list(map(type, members.values())) != list(map(type, last.values())) or members != last:
            call = parse_receive(members, self._node.engine.limits)
            self._last_receive = (members, call)
        return call

    def give_back(self, batch: MessageBatch) -> Steps[Any]:
        """Make the messages of a receive ready again, as nobody has got them."""
        return self.settle("extend", batch, lease_ms=0, wait=False)

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
        return self._settle(wanted, parts, wait=wait and verb != "begin")

    async def _settle(
        self, wanted: Settling, parts: Sequence[Share], *, wait: bool
    ) -> list[Settled]:
        """Settle messages; return a result for each, in their order. Raises Problem."""
        node, limits, lease_ms = self._node, self._node.engine.limits, wanted.lease_ms
        members = {"delay_ms": wanted.delay_ms, "lease_ms": lease_ms}
        wanted = wanted._replace(delay_ms=BACK_MS.take(members, limits))
        EXTEND_MS.take(members, limits)
        REASON.take({"reason": wanted.reason}, limits)
        if wanted.verb == "extend" and lease_ms is None:
            raise BadRequestError("lease_ms is missing", field="lease_ms")
        settled: list[tuple[Share, list[Settled]]] = []
        for part in parts:
            batch = part.batch
            meant = Receipts(batch.columns.lease, np.asarray(part.refs, np.int64))
            (outcome,) = outcomes(node, (self.namespace, batch.topic), wanted, [meant])
            results = part.results(outcome.gone_column)
            settled.append((part, results))
            if wanted.verb != "begin" and not lease_ms:
                part.ended(results)
            elif lease_ms and not len(outcome.gone_column):
                batch.lease_until_ms = node.clock.now_ms() + lease_ms
        node.wake_ready()
        if wanted.verb != "ack":
            node.kick_dispatch()
        await self._safe(wait=wait)
        if len(settled) == 1:
            return settled[0][1]
        return joined(sum(len(part.rows) for part in parts), settled)

    def carry(self, call: Call[T]) -> Steps[T]:
        """Run any call of the API by its handler."""
        return carry(self._node, call)


def _single(row: Row, item: int, horizon_ms: int) -> Single:
    body, kind, time_ms, members = row
    relative, merge = is_relative(kind), merge_of(kind)
    if relative and time_ms > horizon_ms:
        # The engine checks now + delay, which would overflow a column for a huge delay.
        raise DELAY_MS.wrong(delay_fault(horizon_ms), item)
    return Single(body, time_ms, relative, members, merge)


def _sent(singles: list[Single], result: SendResult) -> Iterator[Sent]:
    n = len(singles)
    codes = [result.results] * n if isinstance(result.results, int) else result.results.tolist()
    refs, due = np.asarray(result.refs).tolist(), np.asarray(result.deliver_at_ms).tolist()
    for single, ref, due_ms, code in zip(singles, refs, due, codes, strict=True):
        yield Sent(
            id=single.id.decode() if single.id else ref_to_id(ref),
            deliver_at_ms=due_ms,
            result=RESULT_NAMES[code],
        )
