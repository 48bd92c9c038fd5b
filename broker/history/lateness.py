"""Rule I: how late deliveries came, as quantiles of a histogram of bounded size.

Lateness is counted to the millisecond up to 4,095 ms and to better than 0.1 % above, so that any
number of deliveries fits into a few thousand counters. Negative lateness (the clocks disagree) is
counted too. A quantile is the smallest counted value that at least the given share does not exceed.
"""

from collections.abc import Iterable

QUANTILES = (0.5, 0.9, 0.99, 0.999)
_EXACT_BITS = 12


class Lateness:
    """A histogram of whole milliseconds."""

    __slots__ = ("_counts", "max_ms")

    def __init__(self, values_ms: Iterable[int] = ()) -> None:
        self._counts: dict[int, int] = {}
        self.max_ms = 0
        for value_ms in values_ms:
            self.add(value_ms)

    def add(self, value_ms: int) -> None:
        """Count one delivery."""
        if value_ms > self.max_ms or not self._counts:
            self.max_ms = value_ms
        if not -(1 << _EXACT_BITS) < value_ms < 1 << _EXACT_BITS:
            # Keep the leading 12 bits: 1,234,567 ms counts as 1,234,432 ms.
            shift = value_ms.bit_length() - _EXACT_BITS
            value_ms = value_ms >> shift << shift
        self._counts[value_ms] = self._counts.get(value_ms, 0) + 1

    @property
    def count(self) -> int:
        """How many deliveries were counted."""
        return sum(self._counts.values())

    def quantile(self, share: float) -> int:
        """The lateness that `share` of the deliveries do not exceed; 0 if there are none."""
        wanted = share * self.count
        seen = 0
        for value_ms in sorted(self._counts):
            seen += self._counts[value_ms]
            if seen >= wanted:
                return value_ms
        return 0

    def summary(self) -> dict[str, int]:
        """Count, quantiles and maximum, named as in the JSON report."""
        names = {f"p{share * 100:g}_ms": self.quantile(share) for share in QUANTILES}
        return {"count": self.count, **names, "max_ms": self.max_ms}
