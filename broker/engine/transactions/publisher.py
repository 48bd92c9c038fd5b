"""The publisher creates the rows of committed transactions, slice by slice, on the leader.

A PUBLISH frame has rows of one part, which are decided and applied like those of a SEND. The frames
in the log tell how far publication has got, so a new leader continues with the next row. A slice
appends the frame of one range of a part, or those of several small parts. It takes about two
milliseconds of the loop, whatever its rows cost, and is followed by a pause of the same length. At
most a few slices are uncommitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from delaylog.broker.engine.apply.send_frames import apply_publish
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.send.merge import (
    KEPT,
    REJECTED,
    REPLACED,
    Merge,
    end_replaced,
    merge_ids,
)
from delaylog.broker.engine.send.sends import decide_send
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.transactions.table import Unpublished
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.payloads import PublishDecision
from delaylog.storage.messages.batch import MessageBatch
from delaylog.storage.work import Work

SLICE_SECONDS: Final = 0.002
PAUSE_SECONDS_MAX: Final = 0.005
"""A slice is followed by a pause of its own length, up to this: a delivery takes several turns of
the loop, and should meet a slice in at most half of them."""
SLICE_ROWS_MIN: Final = 512
SLICE_ROWS_MAX: Final = 16_384
SLICE_ROWS_FIRST: Final = 2_048
SLICES_AHEAD: Final = 4
"""Slices that may be uncommitted: their rows wait in memory for the wheel."""
LATE_MS: Final = 60_000
"""Rows that were due longer ago than this, because no node led or the disk was full, get this due
time instead, since the wheel does not take much older rows from sends."""


class Publisher:
    """Publishes the transactions of one engine."""

    def __init__(self, state: EngineState, flush: Callable[[], Work]) -> None:
        """`flush` drains the tails when published rows fill them."""
        self._state = state
        self._flush = flush
        self._rows = SLICE_ROWS_FIRST
        self.longest_seconds = 0.0
        """Duration of the longest slice so far."""

    @property
    def due(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._state.transactions.unpublished) and not self._state.short_of_space

    def work(
        self,
        clock: Callable[[], int],
        timer: Callable[[], float],
        stopping: Callable[[], bool] = lambda: False,
    ) -> Work:
        """Publish until all rows are published. `timer` returns seconds of CPU time."""
        state, table = self._state, self._state.transactions
        ahead: deque[int] = deque()
        while table.unpublished and not stopping():
            one = next(iter(table.unpublished.values()))
            while state.committed() <= one.position:
                yield 0.001
            topic = self._topic(one)
            if topic is not None and not state.staged.has(one.log_from):
                if state.short_of_space:
                    return
                yield partial(state.staged.load, one.next_parts())
                continue
            took = self._slice(one, clock(), timer)
            ahead.append(state.position)
            # Yield before anything else, so that the host commits the frame now.
            yield min(took, PAUSE_SECONDS_MAX)
            while len(ahead) > SLICES_AHEAD and state.committed() < ahead[0]:
                yield 0.001
            while ahead and state.committed() >= ahead[0]:
                ahead.popleft()
            if state.hours.pile.size_bytes >= state.hours.pile.bytes_max // 2:
                yield from self._flush()

    def _pace(self, rows: int, seconds: float) -> None:
        """Adapt the number of rows of the next slice to the duration of this one."""
        self.longest_seconds = max(self.longest_seconds, seconds)
        wanted = int(rows * SLICE_SECONDS / max(seconds, 1e-6))
        self._rows = min(max(wanted, SLICE_ROWS_MIN), 2 * self._rows, SLICE_ROWS_MAX)

    def _topic(self, one: Unpublished) -> Topic | None:
        """The topic of the next rows; None if no group sees them after a drop or a purge."""
        topic = self._state.by_number.get(int(one.parts["topic"][one.at]))
        if topic is None:
            return None
        seen = any(group.floor <= one.position for group in topic.groups.values())
        return topic if seen else None

    def _slice(self, one: Unpublished, now_ms: int, timer: Callable[[], float]) -> float:
        """Publish rows of the parts that are loaded, until rows or time run out.

        Returns the duration in seconds.
        """
        began, rows, took = timer(), 0, 0.0
        while rows < self._rows and took < SLICE_SECONDS and not one.done:
            topic = self._topic(one)
            if topic is None:
                self._skip(one, now_ms)
            elif self._state.staged.has(one.log_from):
                rows += self._publish(one, topic, self._rows - rows, now_ms)
            else:
                break
            took = timer() - began
        if rows:
            self._pace(rows, took)
        return took

    def _skip(self, one: Unpublished, now_ms: int) -> None:
        """Skip the rest of a part: no group sees its rows."""
        part, first = one.parts[one.at], one.row
        stop, at_ms = int(part["rows"]), max(one.decided_ms, now_ms - LATE_MS)
        position, ended = int(part["position"]), (0, 0, 0, 0, stop - first)
        self._append(PublishDecision(one.number, position, first, stop, at_ms, ended, None), now_ms)

    def _publish(self, one: Unpublished, topic: Topic, rows_max: int, now_ms: int) -> int:
        """Publish at most `rows_max` next rows of a part; returns their number."""
        state = self._state
        part, first = one.parts[one.at], one.row
        position, stop = int(part["position"]), min(first + rows_max, int(part["rows"]))
        at_ms = max(one.decided_ms, now_ms - LATE_MS)
        batch = state.staged.rows(position, first, stop, one.decided_ms)
        merge = merge_ids(state, topic, batch, batch.merge or topic.settings.merge, now_ms)
        send = decide_send(state, topic, merge, now_ms)
        counts = _counts(merge, batch.n)
        decision = PublishDecision(one.number, position, first, stop, at_ms, counts, send)
        self._append(decision, now_ms, batch)
        for group, old in merge.replaced:
            # As in a send: the frame of the new messages comes before the one that ends the old.
            end_replaced(state, topic, group, old, now_ms)
        return batch.n

    def _append(
        self, decision: PublishDecision, now_ms: int, batch: MessageBatch | None = None
    ) -> None:
        state = self._state
        position, end = state.append(FrameKind.PUBLISH, decision.encode(), now_ms)
        apply_publish(state, decision, position, end, batch)


def _counts(merge: Merge, n: int) -> tuple[int, int, int, int, int]:
    """Rows by result: created, kept, replaced, rejected, ended."""
    kept = replaced = rejected = 0
    if merge.replaced_rows is not None:
        replaced = len(merge.replaced_rows)
    if merge.kept is not None:
        codes = merge.kept[3]
        kept = int(np.count_nonzero(codes == KEPT))
        replaced += int(np.count_nonzero(codes == REPLACED))
        rejected = int(np.count_nonzero(codes == REJECTED))
    return n - kept - replaced - rejected, kept, replaced, rejected, 0
