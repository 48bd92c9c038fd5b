"""Backoff: how long something waits before it is tried again, longer each time.

The one rule: nothing here sleeps or draws random numbers of its own; attempts and chance come in,
milliseconds go out. Consumers use it for messages, fetching for a broker that is away.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

# A lease, and so a wait of the API, is bounded by the broker; this bounds the arithmetic.
FACTOR_POWER_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first_ms`, then `factor` times as long each time, at most `max_ms`.

    `jitter` is the share of the wait that chance may take away, from 0 (none) to 1 (all of it).
    TypeError and ValueError for anything that is not a wait.
    """

    first_ms: float = 1_000
    max_ms: float = 300_000
    factor: float = 2.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"a backoff's {each.name} is a number, not {type(value).__name__}")
        if not 0 <= self.first_ms <= self.max_ms:
            raise ValueError(
                f"a backoff needs 0 <= first_ms <= max_ms, not {self.first_ms} and {self.max_ms}"
            )
        if not self.factor >= 1:
            raise ValueError(f"a backoff's factor is at least 1, not {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"a backoff's jitter is between 0 and 1, not {self.jitter}")

    def delay_ms(self, attempts: int, chance: float) -> int:
        """The wait after that many attempts (at least 1); `chance` is from 0 to below 1."""
        assert attempts >= 1
        power = min(attempts - 1, FACTOR_POWER_MAX)
        whole = min(float(self.max_ms), self.first_ms * self.factor**power)
        return int(whole * (1 - self.jitter * chance))


# For a broker that cannot be asked: soon at first, since leaders change within a second.
FETCHING: Final = Backoff(first_ms=100, max_ms=5_000, factor=2.0, jitter=0.5)
SETTLING: Final = Backoff(first_ms=50, max_ms=1_000, factor=2.0, jitter=0.5)
