"""What a TXN frame does to the table of transactions; a commit also changes living counts."""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.apply.whole_frames import whole
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.transactions.open_transaction import Unpublished
from delaylog.broker.engine.transactions.outstanding import by_topic
from delaylog.storage.log.payloads import unpack
from delaylog.storage.log.transaction_frames import StagedPart, TxnOp
from delaylog.storage.messages.batch import Block


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
