"""How late messages of a topic become ready, and are handed out, after their due times.

Ready is the promise of the broker. Handed out depends on consumers too: a message waits for a
receive, for its key, and for a rate limit.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from delaylog.broker.engine.watch.histogram import Example, Histogram
from delaylog.storage.columns.questions import every
from delaylog.storage.layout import Int64Array, RowArray, ref_to_id

BOUNDS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000, 300_000)
"""From the promise of a millisecond to an outage of minutes. Few, since each topic has them."""
EXAMPLE_TEXT_MAX: Final = 100
"""Characters of a message id in an example: OpenMetrics allows 128 for labels and their names."""


class HandOut(NamedTuple):
    """Messages that a receive hands out."""

    now_ms: int
    refs: Int64Array
    rows: RowArray
    attempts: Int64Array
    records: bytes
    """Of all rows; empty if they are handed out for a claim, which reads them later."""


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

    def note_handed_out(self, due_ms: Int64Array, out: HandOut, *, retries: bool) -> None:
        """Count messages that are handed out, with their due times; `retries` = some may have been
        handed out before.

        A message that its consumer gave back without a new due time was handed out at its due time
        before, and is not counted again.
        """
        counted = None
        if retries:
            # A retry after a backoff is a new row, with a due time of its own.
            first = (out.attempts == 1) | (out.rows["origin"] != out.refs)
            if not every(first):
                counted = np.flatnonzero(first)
                due_ms = due_ms[counted]
                if not len(due_ms):
                    return
        self.handed_out.note_late(due_ms, out.now_ms)
        if out.records and self.handed_out.wants_example(out.now_ms):
            at = int(due_ms.argmin())
            self._keep_example(out, at if counted is None else int(counted[at]))

    def keep_example(self, late_ms: int, text: str, now_ms: int) -> None:
        """Keep a message, by its id, as an example of what was handed out so late."""
        if len(text) <= EXAMPLE_TEXT_MAX:
            self.handed_out.keep_example(Example("message_id", text, late_ms, now_ms))

    def _keep_example(self, out: HandOut, at: int) -> None:
        """Keep the message at `at`, the latest one that was counted."""
        rows = out.rows
        start = int(rows["size"][:at].astype(np.int64).sum())
        own = out.records[start : start + int(rows["id_size"][at])]
        text = own.decode("utf-8", "replace") or ref_to_id(int(rows["origin"][at]))
        self.keep_example(out.now_ms - int(rows["deliver_at"][at]), text, out.now_ms)
