"""Lateness drawn for a plain terminal: 1-2-5 buckets on a log scale, unicode bars, quantiles.

Pure text from numbers; what counts as lateness and which deliveries belong together is decided
by the caller. A bucket that holds anything always shows at least a sliver, so that a rare late
delivery cannot hide below the width of a bar.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EDGES_MS = [base * 10.0**power for power in range(-1, 5) for base in (1, 2, 5)]
EIGHTHS = " ▏▎▍▌▋▊▉"
BAR_WIDTH = 40


def draw(lateness_ms: npt.NDArray[np.float64], title: str) -> list[str]:
    """The lines of one histogram, from the first to the last bucket in use."""
    if len(lateness_ms) == 0:
        return [f"{title}: none"]
    counts = bucket_counts(lateness_ms)
    used = np.flatnonzero(counts)
    most = int(counts.max())
    lines = [f"{title}: {len(lateness_ms):,} deliveries, {quantiles(lateness_ms)}"]
    for index in range(int(used[0]), int(used[-1]) + 1):
        count = int(counts[index])
        share = 100.0 * count / len(lateness_ms)
        lines.append(f"  {label(index):>17} {bar(count, most)} {count:>8,} {share:6.2f} %")
    return lines


def quantiles(lateness_ms: npt.NDArray[np.float64]) -> str:
    """`p50 1.2 ms, p99 4.0 ms, max 12.3 ms`."""
    p50, p99 = np.percentile(lateness_ms, (50, 99))
    worst = float(lateness_ms.max())
    return f"p50 {milliseconds(p50)}, p99 {milliseconds(p99)}, max {milliseconds(worst)}"


def bucket_counts(lateness_ms: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """How many fall into each bucket: early, below the first edge, between edges, above the last.

    A bucket holds its lower edge and not its upper: with edges 0.1 and 0.2, 0.1 is in the second.
    """
    edges = [-np.inf, 0.0, *EDGES_MS, np.inf]
    return np.histogram(lateness_ms, edges)[0].astype(np.int64)


def label(index: int) -> str:
    """The range of a bucket in words."""
    if index == 0:
        return "EARLY"
    if index == 1:
        return f"under {_short(EDGES_MS[0])}"
    if index == len(EDGES_MS) + 1:
        return f"over {_short(EDGES_MS[-1])}"
    return f"{_short(EDGES_MS[index - 2])} - {_short(EDGES_MS[index - 1])}"


def bar(count: int, most: int) -> str:
    """A bar of BAR_WIDTH columns in eighths of a column, never empty for a count above 0."""
    eighths = round(count / most * BAR_WIDTH * 8)
    if count:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(BAR_WIDTH)


def milliseconds(value: float) -> str:
    """A time with the digits that matter: `0.42 ms`, `13.0 ms`, `1,234 ms`."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f} ms"


def _short(edge_ms: float) -> str:
    return f"{edge_ms / 1000:g} s" if edge_ms >= 1000 else f"{edge_ms:g} ms"
