"""The lag of the event loops of all brokers of one section, as their `/metrics` say it.

A broker is read when the section is over or just before it ends, whichever comes first, so that
every section shows what its brokers' clients would have waited at most.
"""

from __future__ import annotations

import http.client
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import Final

HISTOGRAM: Final = "delaylog_loop_lag_seconds_bucket"
LONGEST: Final = "delaylog_loop_lag_max_seconds"
SHARE: Final = 0.999
TIMEOUT_S: Final = 30.0


class LagMeter:
    """Sums the histograms of brokers, by their process ids."""

    def __init__(self) -> None:
        self._ports: dict[int, int] = {}
        self._seen: dict[int, Counter[float]] = {}
        self._longest: dict[int, float] = {}
        self._counts: Counter[float] = Counter()
        self._longest_s = 0.0

    def add(self, process_id: int, port: int) -> None:
        """This broker runs from now on."""
        self._ports[process_id] = port
        self._seen[process_id] = Counter()
        self._longest[process_id] = 0.0

    def end(self, process_id: int) -> None:
        """It is about to end."""
        if process_id in self._ports:
            self._read(process_id)
            for table in (self._ports, self._seen, self._longest):
                del table[process_id]

    def note(self) -> str:
        """One line about the time since the last one; empty if no broker ran."""
        for process_id in list(self._ports):
            self._read(process_id)
        counts, self._counts = self._counts, Counter()
        longest_s, self._longest_s = self._longest_s, 0.0
        total = sum(counts.values())
        if not total:
            return ""
        left, bound = SHARE * total, inf
        for bound in sorted(counts):
            left -= counts[bound]
            if left <= 0:
                break
        if bound < inf:
            p999 = f"<= {bound * 1000:,.0f} ms"
        else:
            p999 = "> 10 s"
        # A lag that a broker had before this section is no news.
        longest = f"{longest_s * 1000:,.1f} ms" if longest_s else "not above an earlier section's"
        return f"Loop lag: p99.9 {p999}, maximum {longest}."

    def _read(self, process_id: int) -> None:
        """Add what is new of one broker."""
        seen = lags(self._ports[process_id])
        if not seen.counts:
            return
        self._counts += seen.counts - self._seen[process_id]
        self._seen[process_id] = seen.counts
        if seen.longest_s > self._longest[process_id]:
            self._longest[process_id] = seen.longest_s
            self._longest_s = max(self._longest_s, seen.longest_s)


METER: Final = LagMeter()
"""Of the brokers that this process starts."""


@dataclass(frozen=True, slots=True)
class Lags:
    """What a broker's `/metrics` say of its loop."""

    counts: Counter[float]
    """Samples by upper bound in seconds."""
    longest_s: float

    def since(self, before: Lags) -> Lags:
        """The samples since then; the longest lag stays that of the broker's whole life."""
        return Lags(self.counts - before.counts, self.longest_s)

    @property
    def longest_bound_s(self) -> float:
        """The longest lag, no finer than the buckets."""
        return max(self.counts, default=0.0)


def lags(port: int) -> Lags:
    """The lags since the broker started; empty if it does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return Lags(Counter(), 0.0)
    finally:
        connection.close()
    cumulated: dict[float, int] = {}
    longest_s = 0.0
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith(HISTOGRAM):
            cumulated[float(name.split('"')[1].replace("+Inf", "inf"))] = int(float(value))
        elif name == LONGEST:
            longest_s = float(value)
    counts: Counter[float] = Counter()
    below = 0
    for bound in sorted(cumulated):
        counts[bound] = cumulated[bound] - below
        below = cumulated[bound]
    return Lags(counts, longest_s)
