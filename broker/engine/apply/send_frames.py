"""What SEND, TXN and PUBLISH frames do: rows are created, at once or by a transaction.

Each row gets its ref, is counted in every group that sees it and waits for the wheel. TXN frames
change the table of transactions. The rows of a transaction are staged by its PART frames, count as
living from its COMMIT frame on, and are created by PUBLISH frames; they count as sent at the
position of the COMMIT frame.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from delaylog.broker.engine.lookup.text_entries import index_few, index_sent
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.send.producers import digest_of, pack_answer
from delaylog.broker.engine.state import EngineState, FewExposure, whole
from delaylog.broker.engine.transactions.table import Unpublished, by_topic
from delaylog.storage.columns import some
from delaylog.storage.layout import HOUR_MS, HOUR_SHIFT, FrameKind, Int64Array
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.payloads import PublishDecision, SendDecision, StagedPart, TxnOp, unpack
from delaylog.storage.messages.batch import Block, MessageBatch, has_own_backoffs
from delaylog.storage.messages.rows import FewRows, PlacedRows, place_rows
from delaylog.wheel import FEW_ENTRIES_MAX, Entries

# ------------------------------------------------------------------------------------------ TXN


@whole
def apply_transaction(
    state: EngineState, payload: Block, leader_time_ms: int, position: int
) -> None:
    """Apply a TXN frame, as a leader does and as a replay does."""
    table = state.transactions
    head, tail = unpack(payload)
    op = head["op"]
    if op == TxnOp.PART:
        apply_part(state, StagedPart.decode(head), position, len(tail))
    elif op == TxnOp.BEGIN:
        table.begin(
            head["txn"],
            head["id"],
            ttl_ms=head["ttl"],
            expires_ms=head["expires"],
            leader_time_ms=leader_time_ms,
            owner=head.get("by", ""),
        )
    elif op == TxnOp.COMMIT:
        indexes = np.frombuffer(tail, "<u4")
        count_committed(state, table.commit(head["txn"], indexes, leader_time_ms, position))
    elif op == TxnOp.ABORT:
        table.end(head["txn"], "aborted", leader_time_ms)
    elif op == TxnOp.EXPIRE:
        table.end(head["txn"], "expired", leader_time_ms)
    elif op == TxnOp.FORGET:
        table.forget(head["before"])


def apply_part(state: EngineState, staged: StagedPart, position: int, size: int) -> None:
    """Note a part of `size` bytes that the frame at `position` has staged."""
    state.transactions.stage(staged, position, size)


def count_committed(state: EngineState, one: Unpublished) -> None:
    """Count rows as living from their commit on, published or not."""
    for number, rows, _ in by_topic(one.parts):
        state.before_change(number)
        topic = state.by_number.get(number)
        for group in topic.groups.values() if topic is not None else ():
            group.counts.add("living", rows)


def uncount_committed(state: EngineState, one: Unpublished, number: int, rows: int) -> None:
    """Undo `count_committed` for rows that are published now, since `apply_send` counts them.

    A group whose floor lies behind the commit does not count them any more: a purge ended them, or
    the group was created later.
    """
    state.before_change(number)
    topic = state.by_number.get(number)
    for group in topic.groups.values() if topic is not None else ():
        if group.floor <= one.position:
            group.counts.add("living", -rows)


# ----------------------------------------------------------------------------- SEND and PUBLISH


class Logged(NamedTuple):
    """Position and end of a frame in the log, and the leader's time in it."""

    position: int
    end: int
    leader_time_ms: int


@whole
def apply_send(
    state: EngineState,
    batch: MessageBatch,
    decision: SendDecision,
    logged: Logged,
    sent_position: int | None = None,
) -> tuple[PlacedRows, Int64Array]:
    """Create the rows of a batch; returns them and their refs, both ordered by hour.

    `sent_position` = the log position at which they count as sent, if not this frame's.
    """
    position, end, leader_time_ms = logged
    state.producers.expire(leader_time_ms)
    placed = place_rows(batch, decision, leader_time_ms, position, state.id_hash, sent_position)
    refs = state.hours.number(placed, end)
    rows = placed.rows
    if not batch.id.empty:
        state.ids.put(decision.topic, rows["id_hash"], refs)
    if not (batch.key.empty and batch.tags.empty):
        index_sent(state, decision.topic, batch, placed, refs)
    topic = state.by_number.get(decision.topic)
    if topic is not None:
        state.before_change(decision.topic)
        lengths = (stop - start for start, stop in itertools.pairwise(placed.starts))
        hours = dict(zip(placed.hours, lengths, strict=True))
        _count_sent(state, topic, hours, len(refs), sent_position)
        whole = placed.order is None
        if batch.ttl_ms is not None or decision.ttl_ms >= 0:
            state.marks.timed.add(decision.topic)
        topic.bytes_sent += len(placed.data) if whole else int(rows["size"].sum())
        if not topic.prioritised and batch.priority is not None and some(rows["priority"]):
            topic.prioritised = True
            topic.follow_settings()
        if not topic.own_backoffs and not batch.headers.empty:
            topic.own_backoffs = some(has_own_backoffs(batch.headers, batch.n))
        if decision.successors is not None:
            _line_up(topic, placed, refs, decision.successors)
    if decision.producer is not None and decision.sequence is not None:
        _remember_answer(state, batch, decision, placed, refs, logged)
    expose(state, placed, refs, end)
    return placed, refs


@whole
def apply_send_few(state: EngineState, topic: Topic, few: FewRows, end: int) -> None:
    """Create a few rows of a frame that was just appended: `apply_send` without columns."""
    state.producers.expire(few.now_ms)
    state.hours.number_few(few, end)
    number, refs, names = topic.number, few.refs, few.names
    state.before_change(number)
    hours = {few.hours[0]: len(refs)} if len(few.hours) == 1 else few.hour_counts()
    _count_sent(state, topic, hours, len(refs), None)
    topic.bytes_sent += len(few.data)
    if few.decision.ttl_ms >= 0 or "ttl_ms" in names:
        state.marks.timed.add(number)
    if names:
        if few.id_hashes:
            state.ids.put_few(number, *few.named())
        index_few(state, number, few)
        if few.prioritised and not topic.prioritised:
            topic.prioritised = True
            topic.follow_settings()
        topic.own_backoffs = topic.own_backoffs or few.own_backoffs
    # None of them is due below the hour floor.
    entries = list(zip(few.due_ms, refs, itertools.repeat(number)))
    if few.order is not None:
        entries = [entries[at] for at in few.order]
    state.exposures.append(FewExposure(end, entries))


@whole
def apply_publish(
    state: EngineState,
    decision: PublishDecision,
    position: int,
    end: int,
    batch: MessageBatch | None = None,
) -> None:
    """Create rows of a committed part, as for a SEND. `batch` = the rows, if already read."""
    send = decision.send
    if send is not None:
        one = state.transactions.unpublished[decision.transaction]
        first, stop = decision.first, decision.stop
        if batch is None:
            batch = state.staged.rows(decision.part, first, stop, one.decided_ms)
        apply_send(state, batch, send, Logged(position, end, decision.at_ms), one.position)
        uncount_committed(state, one, int(one.parts["topic"][one.at]), stop - first)
    state.transactions.published(decision)
    if not state.transactions.unpublished:
        # Not in the publisher: a start and a follower read parts too.
        state.staged.drop()


def parts_needed(state: EngineState, frame: Frame) -> list[int]:
    """Positions of the parts to load for a PUBLISH frame; empty if its part is loaded already."""
    if frame.header.kind != FrameKind.PUBLISH:
        return []
    decision = PublishDecision.decode(frame.payload)
    if decision.send is None or state.staged.has(decision.part):
        return []
    return state.transactions.unpublished[decision.transaction].next_parts()


def in_batch_order(placed: PlacedRows, refs: Int64Array, n: int) -> tuple[Int64Array, Int64Array]:
    """(refs, due times) in the order of the batch; 0 for rows that were not accepted."""
    due = placed.rows["deliver_at"]
    if placed.order is None:
        return refs.copy(), due.astype(np.int64)
    out_refs, out_due = np.zeros(n, np.int64), np.zeros(n, np.int64)
    out_refs[placed.order] = refs
    out_due[placed.order] = due
    return out_refs, out_due


def expose(state: EngineState, placed: PlacedRows, refs: Int64Array, end: int) -> None:
    """Queue rows for the wheel. A replay does not: opening the hours finds its rows."""
    rows = placed.rows
    if state.replaying or len(rows) == 0:
        return
    if len(rows) <= FEW_ENTRIES_MAX:
        columns = (rows["deliver_at"].tolist(), refs.tolist(), rows["topic"].tolist())
        few = list(zip(*columns, strict=True))
        if all(due_ms >= (ref >> HOUR_SHIFT) * HOUR_MS for due_ms, ref, _ in few):
            state.exposures.append(FewExposure(end, few))
            return
    topics = rows["topic"].astype(np.int64)
    entries = Entries(rows["deliver_at"].astype(np.int64), refs, topics)
    state.expose(entries, end, placed.hours[0], placed.due_span_ms)


def _remember_answer(
    state: EngineState,
    batch: MessageBatch,
    decision: SendDecision,
    placed: PlacedRows,
    refs: Int64Array,
    logged: Logged,
) -> None:
    """Store the answer to the first send of (producer, sequence)."""
    assert decision.producer is not None
    assert decision.sequence is not None
    _, due = in_batch_order(placed, refs, batch.n)
    firsts = refs[np.asarray(placed.starts[:-1], np.int64)]
    answer = pack_answer(due, firsts, decision.kept, logged.end, digest_of(batch))
    state.producers.remember(decision.producer, decision.sequence, answer, logged.leader_time_ms)


def _line_up(
    topic: Topic,
    placed: PlacedRows,
    refs: Int64Array,
    successors: tuple[Int64Array, Int64Array, Int64Array],
) -> None:
    """Let new messages wait for the end of leased messages with the same ids."""
    order = np.arange(len(refs)) if placed.order is None else placed.order
    # `placed` is ordered by hour, while the decision numbers rows as in the batch.
    index_of = {row: at for at, row in enumerate(order.tolist())}
    hashes = placed.rows["id_hash"]
    for row, predecessor, number in zip(*(c.tolist() for c in successors), strict=True):
        group = topic.groups.get(number)
        if group is not None:
            at = index_of[row]
            group.gate.wait_for(int(refs[at]), predecessor, int(hashes[at]))


def _count_sent(
    state: EngineState,
    topic: Topic,
    hours: Mapping[int, int],
    count: int,
    sent_position: int | None,
) -> None:
    """Count new rows, by hour, in each group that sees them."""
    state.series.count_sent(topic, count)
    topic.last_hour = max((topic.last_hour, *hours))
    others = -1
    for group in topic.groups.values():
        # Rows that count as sent below a group's floor have ended there already.
        if sent_position is None or sent_position >= group.floor:
            group.counts.add("living", count)
            group.hours.add(hours, +1)
            others += 1
    if others:
        state.hours.counts.count_living(hours, others)
