"""What a TXN frame does: to the table, and a commit to the counts of what waits."""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.transactions.held import by_topic
from delaylog.broker.engine.transactions.open_transaction import Unpublished
from delaylog.storage.log.payloads import unpack
from delaylog.storage.log.transaction_frames import StagedPart, TxnOp
from delaylog.storage.messages.batch import Block


def apply_transaction(
    state: EngineState, payload: Block, leader_time_ms: int, position: int
) -> None:
    """Replay one frame; the live path does the same."""
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
        )
    elif op == TxnOp.COMMIT:
        places = np.frombuffer(tail, "<u4")
        count_committed(state, table.commit(head["txn"], places, leader_time_ms, position))
    elif op == TxnOp.ABORT:
        table.end(head["txn"], "aborted", leader_time_ms)
    elif op == TxnOp.EXPIRE:
        table.end(head["txn"], "expired", leader_time_ms)
    elif op == TxnOp.FORGET:
        table.forget(head["before"])


def apply_part(state: EngineState, staged: StagedPart, position: int, size: int) -> None:
    """A part of `size` bytes stands in the log, whose frame begins at `position`."""
    state.transactions.stage(staged, position, size)


def count_committed(state: EngineState, one: Unpublished) -> None:
    """Rows count as living from their commit on, wherever they are on their way."""
    for number, rows, _ in by_topic(one.parts):
        state.before_change(number)
        topic = state.by_number.get(number)
        for group in topic.groups.values() if topic is not None else ():
            group.counts.add("living", rows)


def uncount_committed(state: EngineState, one: Unpublished, number: int, rows: int) -> None:
    """Rows of a topic come into their hours, and are counted there.

    A group with a floor behind the commit has them counted no more: its purge ended them, or it
    was born later.
    """
    state.before_change(number)
    topic = state.by_number.get(number)
    for group in topic.groups.values() if topic is not None else ():
        if group.floor <= one.position:
            group.counts.add("living", -rows)
