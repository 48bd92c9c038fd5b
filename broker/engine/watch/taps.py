"""Taps: what is handed out of a topic while somebody looks on, without leasing it.

A tap is made by its first reader and dropped when nobody has read it for a minute, so a topic that
nobody watches costs a look-up a hand-out. Taps are not state: a restart begins without them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Final, NamedTuple

from delaylog.broker.engine.errors import QuotaRefusal
from delaylog.storage.layout import Int64Array, RowArray, ref_to_id

KEPT: Final = 10_000
"""Hand-outs of a tap; a reader that is slower misses some."""
TAPS_MAX: Final = 16
"""Topics that are watched at a time."""
IDLE_MS: Final = 60_000
_NUMBERS_A_MS: Final = 1_000
"""Numbers begin at the time of the tap times this, so that a new tap repeats no old numbers."""


class HandedOut(NamedTuple):
    """One message that was handed out."""

    number: int
    at_ms: int
    id: str
    group: str
    consumer: str
    """Empty if it gave no name."""
    deliver_at_ms: int
    attempts: int
    size: int
    """Bytes of the message's record."""


class Tap:
    """The newest hand-outs of one topic."""

    def __init__(self, now_ms: int) -> None:
        self.next = now_ms * _NUMBERS_A_MS
        """Number of the next hand-out."""
        self.used_ms = now_ms
        self._kept: deque[HandedOut] = deque(maxlen=KEPT)

    def note(
        self,
        group: str,
        rows: RowArray,
        attempts: Int64Array,
        records: bytes,
        consumers: Sequence[str],
        now_ms: int,
    ) -> None:
        """Keep messages that are handed out now. `consumers`: one name, or one a message; without
        `records` a message is known by the id that the broker would give.
        """
        n = len(rows)
        first = max(n - KEPT, 0)
        self.next += first
        ends = list(accumulate(rows["size"].tolist()))
        sizes, id_sizes = rows["size"].tolist(), rows["id_size"].tolist()
        origins, due = rows["origin"].tolist(), rows["deliver_at"].tolist()
        tries = attempts.tolist()
        for at in range(first, n):
            start = ends[at] - sizes[at]
            own = records[start : start + id_sizes[at]].decode("utf-8", "replace")
            consumer = consumers[at if len(consumers) == n else 0] if consumers else ""
            self._kept.append(
                HandedOut(
                    self.next,
                    now_ms,
                    own or ref_to_id(origins[at]),
                    group,
                    consumer,
                    due[at],
                    tries[at],
                    sizes[at],
                )
            )
            self.next += 1

    def since(self, number: int, count_max: int) -> tuple[list[HandedOut], bool]:
        """The hand-outs from `number` on, the first `count_max`, and whether none is missing."""
        first = self._kept[0].number if self._kept else self.next
        skipped = min(max(number - first, 0), len(self._kept))
        return list(islice(self._kept, skipped, skipped + count_max)), number >= first


class Taps:
    """The taps of an engine, by topic number."""

    def __init__(self) -> None:
        self.by_topic: dict[int, Tap] = {}

    def of(self, topic: int, now_ms: int) -> Tap:
        """The tap of a topic, made now if there is none. Raises QuotaRefusal at `TAPS_MAX`."""
        tap = self.by_topic.get(topic)
        if tap is None:
            if len(self.by_topic) >= TAPS_MAX:
                self.drop_idle(now_ms)
            if len(self.by_topic) >= TAPS_MAX:
                # To take another's would make its reader miss messages, and take it back.
                raise QuotaRefusal(
                    f"{TAPS_MAX} topics are being watched: try again when nobody has read one of "
                    f"them for {IDLE_MS // 1000} s"
                )
            tap = self.by_topic[topic] = Tap(now_ms)
        tap.used_ms = now_ms
        return tap

    def drop_idle(self, now_ms: int) -> None:
        """Drop taps that nobody reads any more."""
        for topic, tap in list(self.by_topic.items()):
            if not 0 <= now_ms - tap.used_ms < IDLE_MS:
                del self.by_topic[topic]
