"""Time windows around marks: what a kill, a failover or a clock step excuses. Also the end.

A mark covers `[t - slack_ms, until + slack_ms]`, since the test writes it a little before or after
the event itself. A kill or failover may lose leases that were not yet durable, so it excuses a
repeated delivery; a *planned* failover loses nothing and excuses nothing. Broker times before and
after a clock step cannot be compared.
"""

from bisect import bisect_right
from collections.abc import Iterable

from delaylog.broker.history.events import FOREVER
from delaylog.broker.history.model import Mark


class Windows:
    """Closed intervals. Finds in logarithmic time whether any of them meets another interval."""

    __slots__ = ("_firsts", "_lasts_max", "_names")

    def __init__(self, intervals: Iterable[tuple[int, int, str]]) -> None:
        self._firsts: list[int] = []
        self._lasts_max: list[int] = []
        self._names: list[str] = []
        # Of all windows that begin before a time, the one that ends last decides whether any
        # reaches it. So each entry has the latest end so far and the name of that window.
        latest = (-FOREVER, "")
        for first, last, name in sorted(intervals):
            latest = max(latest, (last, name))
            self._firsts.append(first)
            self._lasts_max.append(latest[0])
            self._names.append(latest[1])

    def meets(self, first: int, last: int) -> bool:
        """Whether any window meets `[first, last]`."""
        return self.meeting(first, last) is not None

    def meeting(self, first: int, last: int) -> str | None:
        """The name of a window that meets `[first, last]`, if there is one."""
        index = bisect_right(self._firsts, last) - 1
        if index < 0 or self._lasts_max[index] < first:
            return None
        return self._names[index]


class Marks:
    """All marks of a history, indexed for queries."""

    __slots__ = ("_clock", "_disturbed", "_losses", "_losses_ms", "counts", "end_ms", "faults",
                 "groups")  # fmt: skip

    def __init__(self, marks: Iterable[Mark], *, slack_ms: int, settle_ms: int) -> None:
        losses: list[tuple[int, int, str]] = []
        clock: list[tuple[int, int, str]] = []
        disturbed: list[tuple[int, int, str]] = []
        self.counts: dict[str, int] = {}
        self.end_ms = FOREVER
        """Consumers drained the queue until this time: the earliest `end` mark."""
        self.groups: dict[str, int] = {}
        """Announced groups and when: each must see every message sent after that time."""
        self.faults: list[tuple[str, int, int]] = []
        """Kills, failovers and clock steps: kind, first and last time."""
        for mark in marks:
            self.counts[mark.kind] = self.counts.get(mark.kind, 0) + 1
            first, last = mark.t - slack_ms, mark.until + slack_ms
            if mark.kind == "end":
                self.end_ms = min(self.end_ms, mark.t)
            elif mark.kind == "group":
                name = mark.group or ""
                self.groups[name] = min(self.groups.get(name, FOREVER), mark.t)
            else:
                self.faults.append((mark.kind, mark.t, mark.until))
                disturbed.append((first, last + settle_ms, mark.kind))
                if mark.kind == "clock":
                    clock.append((first, last, mark.kind))
                elif not mark.planned:
                    losses.append((first, last, mark.kind))
        self._losses = Windows(losses)
        self._clock = Windows(clock)
        self._disturbed = Windows(disturbed)
        self._losses_ms = sorted(first + slack_ms for first, _, _ in losses)

    def lease_loss(self, first_ms: int, last_ms: int) -> str | None:
        """`kill` or `failover` if one may have lost a lease between these client times."""
        return self._losses.meeting(first_ms, last_ms)

    def clock_stepped(self, first_ms: int, last_ms: int) -> bool:
        """Whether the broker's clock may have been stepped between these client times."""
        return self._clock.meets(first_ms, last_ms)

    def disturbed(self, first_ms: int, last_ms: int) -> bool:
        """Whether lateness between these times may be due to a fault and its aftermath."""
        return self._disturbed.meets(first_ms, last_ms)

    def repeated_span_ms(self, first_ms: int, last_ms: int) -> int:
        """Time from a delivery at `first_ms` to the next kill or failover; 0 if after `last_ms`."""
        index = bisect_right(self._losses_ms, first_ms)
        if index == len(self._losses_ms) or self._losses_ms[index] > last_ms:
            return 0
        return self._losses_ms[index] - first_ms
