"""Notes failed attempts as SETTLE and MOVE frames are applied.

The leases tell who had the messages, so this runs before they are closed. An attempt that did not
count, because the consumer had not begun it, has not failed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from delaylog.broker.engine.deliver.leases import Lease
from delaylog.broker.engine.failures.failure_table import LEASE_EXPIRED, NACK, REJECTED
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns.questions import grouped
from delaylog.storage.layout import Cause, Int64Array
from delaylog.storage.messages.batch import Column

RETURNS: Final = (Cause.NACK, Cause.LEASE_EXPIRED)
"""Causes of a frame that returns messages after a failed attempt."""
FAILURES: Final = (*RETURNS, Cause.RETRIES, Cause.TTL)
"""Causes of a frame that ends an attempt, or a message after its last one, without success."""


class Failed(NamedTuple):
    """What a frame says of attempts that ended without success."""

    topic: int
    group: int
    refs: Int64Array
    attempts: Int64Array
    """Attempts of each message that count from now on."""
    cause: int
    died: bool
    """Whether they are dead letters now."""
    at_ms: int
    reason: str


def note_failures(state: EngineState, failed: Failed, leases: Column | None) -> None:
    """Add the attempts that have failed to the table. `leases` as in a SettleDecision."""
    if leases is None or len(failed.refs) == 0:
        return
    if isinstance(leases, int):
        parts = [(leases, np.arange(len(failed.refs)))]
    else:
        parts = [(number, at) for number, at in grouped(leases)]
    for number, at in parts:
        lease = state.leases.get(number)
        if lease is not None:
            _note(state, failed, lease, at)


def _note(state: EngineState, failed: Failed, lease: Lease, at: Int64Array) -> None:
    refs = failed.refs[at]
    order = np.argsort(lease.refs, kind="stable")
    rows = order[np.minimum(np.searchsorted(lease.refs, refs, sorter=order), len(order) - 1)]
    tried = (lease.refs[rows] == refs) & (failed.attempts[at] >= lease.attempts[rows])
    rows = rows[tried]
    if len(rows) == 0:
        return
    if failed.died and failed.cause == Cause.NACK:
        how: int | np.ndarray = REJECTED
    elif failed.cause in RETURNS or failed.reason:
        how = LEASE_EXPIRED if failed.cause == Cause.LEASE_EXPIRED else NACK
    else:
        # The message died of its last attempt, however that ended.
        how = np.where(lease.deadlines[rows] <= failed.at_ms, LEASE_EXPIRED, NACK)
    columns = {
        "origin": lease.origins[rows],
        "attempt": lease.attempts[rows],
        "topic": failed.topic,
        "group": failed.group,
        "at_ms": failed.at_ms,
        "how": how,
    }
    texts = {"reason": failed.reason, "consumer": lease.consumer, "address": lease.address}
    state.failures.add(columns, len(rows), texts)
