"""Histograms with fixed bounds, and those of a topic's lateness.

A histogram has counts by bucket, their sum, and an example for each bucket. A large batch costs
three vectorised passes and one more for each bucket that it crosses, which is cheaper than
searching a bucket for each value: the values of a batch are close together.

Lateness is how late messages of a topic become ready, and are handed out, after their due times.
Ready is the promise of the broker. Handed out depends on consumers too: a message waits for a
receive, for its key, and for a rate limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from delaylog.storage.columns import every
from delaylog.storage.layout import Int64Array, RowArray, ref_to_id

# ----------------------------------------------------------------------------------- histograms

EXAMPLE_EVERY_MS: Final = 1_000
"""Least time between two examples of a histogram: finding one costs more than counting a batch."""
SHORT: Final = 16
"""Up to this number of values a loop is cheaper than numpy's fixed costs."""


class Example(NamedTuple):
    """One value that was counted, and what it belongs to."""

    label: str
    """Name of what `value` says, such as `message_id`."""
    text: str
    value: float
    """In the unit of the histogram."""
    at_ms: int
    """When it was counted, in Unix milliseconds."""


class Histogram:
    """Values of one kind, in the unit of the bounds."""

    __slots__ = ("_example_ms", "bounds", "counts", "examples", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        """Upper bounds, ascending; one more bucket has what is above the last one."""
        self.counts = [0] * (len(bounds) + 1)
        """Values by bucket, not cumulated."""
        self.sum = 0.0
        self.examples: dict[int, Example] = {}
        """The newest example of a bucket, by its index."""
        self._example_ms = 0

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def note(self, value: float, count: int = 1) -> None:
        """Count `value`, `count` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def note_late(self, due_ms: Int64Array, now_ms: int) -> None:
        """Count how many milliseconds `now_ms` is after each of these times, at least one time."""
        n, bounds = len(due_ms), self.bounds
        if n <= SHORT:
            times, counts = due_ms.tolist(), self.counts
            for due in times:
                counts[bisect_left(bounds, now_ms - due)] += 1
            self.sum += now_ms * n - sum(times)
            return
        # `max()` and `min()` take three times as long.
        at = bisect_left(bounds, now_ms - int(due_ms[due_ms.argmax()]))
        last = bisect_left(bounds, now_ms - int(due_ms[due_ms.argmin()]))
        below = 0
        while at < last:
            upto = int(np.count_nonzero(due_ms >= now_ms - bounds[at]))
            self.counts[at] += upto - below
            below, at = upto, at + 1
        self.counts[last] += n - below
        self.sum += now_ms * n - int(due_ms.sum())

    def add(self, other: Histogram) -> None:
        """Add what another histogram with the same bounds has counted."""
        assert self.bounds == other.bounds, "buckets must be the same"
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def copy(self) -> Histogram:
        """What it has counted up to now."""
        made = Histogram(self.bounds)
        made.counts, made.sum = list(self.counts), self.sum
        made.examples = dict(self.examples)
        return made

    def wants_example(self, now_ms: int) -> bool:
        """Whether an example is welcome, which is true once a second; the caller must give one."""
        if 0 <= now_ms - self._example_ms < EXAMPLE_EVERY_MS:
            return False
        self._example_ms = now_ms
        return True

    def keep_example(self, example: Example) -> None:
        """Keep an example for its bucket."""
        self.examples[bisect_left(self.bounds, example.value)] = example


# -------------------------------------------------------------------------- lateness of a topic

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
