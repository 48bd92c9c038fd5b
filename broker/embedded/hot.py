"""The hot path of an embedded broker: send, receive and settle, without building a request.

Arguments are checked by the code of clients (`make_row`) and of servers (the bulk codec, the
engine). The caller's columns are passed on to the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from delaylog.broker.calls.forms.deliveries import COLUMNS, NOTHING, bulk_fields
from delaylog.broker.calls.handlers.batch_sends import RESULT_NAMES
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.calls.turn.settles import outcomes
from delaylog.broker.calls.turn.single_sends import batch_of, frames
from delaylog.broker.calls.turn.writes import Settling, send_batch
from delaylog.broker.embedded.node import EmbeddedNode, as_host
from delaylog.broker.embedded.waits.steps import Begun, Safe
from delaylog.broker.engine.deliver.settling import Receipts
from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.model import SendResult
from delaylog.broker.engine.send.sending import check_batch
from delaylog.broker.host.waiters import TopicKey
from delaylog.client.models import Sent, Settled
from delaylog.client.sending.row import Row, is_relative, merge_of
from delaylog.client.shards.settling import Share, joined
from delaylog.client.wire.bulk_answers import ReceivedBatch, SendAnswer, received
from delaylog.client.wire.checks import check_topic
from delaylog.client.wire.columns import all_of, column_of
from delaylog.contract.calls.shapes import BACK_MS, EXTEND_MS, REASON
from delaylog.contract.message_fields import DELAY_MS
from delaylog.contract.times import delay_fault
from delaylog.storage.layout import ref_to_id
from delaylog.storage.messages.batch import decode_send
from delaylog.storage.messages.singles import Single


def checked_key(namespace: str, topic: str) -> TopicKey:
    """(namespace, topic), after a check of the topic. Raises TypeError, ValueError as a client."""
    check_topic(topic)
    return namespace, topic


# --------------------------------------------------------------------------- send


async def send_rows(
    node: EmbeddedNode, key: TopicKey, rows: Sequence[Row], *, wait: bool = True
) -> list[Sent]:
    """Send messages: all of them, or none if one is refused.

    Each run of messages with the same `merge` becomes a frame. Raises EngineError.
    """
    engine, limits = node.engine, node.engine.limits
    if engine.housekeeping.crowded():
        await node.room()
    now_ms = node.clock.now_ms()
    singles = [_single(row, item, limits.horizon_ms) for item, row in enumerate(rows)]
    parts = [
        (part, batch_of(part, now_ms))
        for part in frames(
            singles, limits.request_bytes_max, limits.bulk_rows_max, lambda single: single
        )
    ]
    if len(parts) > 1:
        for _, batch in parts:
            check_batch(engine.state, batch, now_ms)
    out: list[Sent] = []
    for part, batch in parts:
        out += _sent(part, send_batch(node, key, batch, now_ms))
    await _safe(node, wait=wait)
    return out


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


async def send_wire(
    node: EmbeddedNode, key: TopicKey, wire: bytes, *, wait: bool = True
) -> SendAnswer:
    """Send a bulk body as one frame. Raises BatchError, EngineError."""
    engine = node.engine
    if len(wire) > engine.limits.request_bytes_max:
        raise Problem("too_large", f"a batch has at most {engine.limits.request_bytes_max} bytes")
    batch = decode_send(wire, rows_max=engine.limits.bulk_rows_max)
    if engine.housekeeping.crowded():
        await node.room()
    result = send_batch(node, key, batch, node.clock.now_ms())
    await _safe(node, wait=wait)
    codes = result.results
    n = batch.n
    return SendAnswer(
        n,
        column_of("refs", result.refs, "<i8", n),
        column_of("deliver_at_ms", result.deliver_at_ms, "<i8", n),
        all_of(codes, "<u1", n) if isinstance(codes, int) else column_of("result", codes, "<u1", n),
    )


async def _safe(node: EmbeddedNode, *, wait: bool) -> None:
    """Wait until everything appended is safe; without `wait`, only request the commit."""
    position = node.engine.state.position
    await (Safe(position) if wait else Begun(position))


# --------------------------------------------------------------------------- receive


async def receive_batch(node: EmbeddedNode, key: TopicKey, call: ReceiveCall) -> ReceivedBatch:
    """Lease ready messages, or wait for some; the batch is empty if none came."""
    delivery = await long_poll(as_host(node), key, call) or NOTHING
    return received(bulk_fields(delivery, COLUMNS, node.clock.now_ms()), delivery.count)


# --------------------------------------------------------------------------- settle


async def settle(
    node: EmbeddedNode,
    namespace: str,
    wanted: Settling,
    parts: Sequence[Share],
    *,
    wait: bool = True,
) -> list[Settled]:
    """Settle messages; return a result for each, in their order. Raises Problem."""
    limits, lease_ms = node.engine.limits, wanted.lease_ms
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
        gone = outcomes(node, (namespace, batch.topic), wanted, [meant])[0].gone_column
        results = part.results(gone)
        settled.append((part, results))
        if wanted.verb != "begin" and not lease_ms:
            part.ended(results)
        elif lease_ms and not len(gone):
            batch.lease_until_ms = node.clock.now_ms() + lease_ms
    node.wake_ready()
    await _safe(node, wait=wait)
    if len(settled) == 1:
        return settled[0][1]
    return joined(sum(len(part.rows) for part in parts), settled)
