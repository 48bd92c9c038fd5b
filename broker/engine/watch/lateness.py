"""How late messages of a topic become ready, and are handed out, after their due times.

Ready is the promise of the broker. Handed out depends on consumers too: a message waits for a
receive, for its key, and for a rate limit.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.watch.histogram import SHORT, Example, Histogram
from delaylog.storage.columns.questions import every, some
from delaylog.storage.layout import Int64Array, RowArray, ref_to_id

BOUNDS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000, 300_000)
"""From the promise of a millisecond to an outage of minutes. Few, since each topic has them."""
EXAMPLE_TEXT_MAX: Final = 100
"""Characters of a message id in an example: OpenMetrics allows 128 for labels and their names."""


class Lateness:
    """The lateness of one topic, or of many."""

    __slots__ = ("handed_out", "ready")

    def __init__(self) -> None:
        self.ready = Histogram(BOUNDS_MS)
        """From due to ready."""
        self.handed_out = Histogram(BOUNDS_MS)
        """From due to the first hand-out."""

    def add(self, other: Lateness) -> None:
        """Add what another one has counted."""
        self.ready.add(other.ready)
        self.handed_out.add(other.handed_out)

    def note_handed_out(
        self, rows: RowArray, refs: Int64Array, attempts: Int64Array, now_ms: int, records: bytes
    ) -> None:
        """Count messages that are handed out now; `records` may be empty.

        A message that its consumer gave back without a new due time was handed out at its due time
        before, and is not counted again.
        """
        due_ms = rows["deliver_at"]
        if len(due_ms) > SHORT:
            # Rows are 112 bytes: one pass over them instead of three.
            due_ms = due_ms.copy()
        counted = None
        if int(attempts[0]) > 1 if len(attempts) == 1 else some(attempts > 1):
            # A retry after a backoff is a new row, with a due time of its own.
            first = (attempts == 1) | (rows["origin"] != refs)
            if not every(first):
                counted = np.flatnonzero(first)
                due_ms = due_ms[counted]
                if not len(due_ms):
                    return
        self.handed_out.note_late(due_ms, now_ms)
        if records and self.handed_out.wants_example(now_ms):
            at = int(np.argmin(due_ms))
            self._keep_example(rows, at if counted is None else int(counted[at]), now_ms, records)

    def _keep_example(self, rows: RowArray, at: int, now_ms: int, records: bytes) -> None:
        """Keep the message at `at`, the latest one that was counted."""
        start = int(rows["size"][:at].astype(np.int64).sum())
        own = records[start : start + int(rows["id_size"][at])]
        text = own.decode("utf-8", "replace") or ref_to_id(int(rows["origin"][at]))
        if len(text) <= EXAMPLE_TEXT_MAX:
            late_ms = now_ms - int(rows["deliver_at"][at])
            self.handed_out.keep_example(Example("message_id", text, late_ms, now_ms))
