"""Backoff: exponential backoff with jitter.

The functions are pure: they take the number of attempts and a random number, and return
milliseconds. Consumers use it for redelivery, workers also for calls to an unreachable broker.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field, fields
from datetime import timedelta
from typing import Final

from delaylog.client.wire.durations import duration_ms

# Bounds the exponent, so that the arithmetic cannot overflow.
FACTOR_POWER_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that start at `first_ms`, grow by `factor` each time, and are at most `max_ms`.

    `jitter` is the share of the wait that is random, from 0 (none) to 1 (all of it); it only
    shortens the wait. `first` and `max` are other forms of `first_ms` and `max_ms`. Raises
    TypeError or ValueError for invalid values.
    """

    first_ms: float = 1_000
    max_ms: float = 300_000
    factor: float = 2.0
    jitter: float = 0.0
    first: InitVar[timedelta | None] = field(default=None, kw_only=True)
    max: InitVar[timedelta | None] = field(default=None, kw_only=True)

    def __post_init__(self, first: timedelta | None, max: timedelta | None) -> None:
        for name, span in (("first", first), ("max", max)):
            if span is not None:
                object.__setattr__(self, f"{name}_ms", duration_ms(name, span, None))
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
        """The wait after this many attempts (at least 1); `chance` is a random number in [0, 1)."""
        assert attempts >= 1
        power = min(attempts - 1, FACTOR_POWER_MAX)
        whole = min(float(self.max_ms), self.first_ms * self.factor**power)
        return int(whole * (1 - self.jitter * chance))


# For an unreachable broker: short at first, since a leader is elected within a second.
FETCHING: Final = Backoff(first_ms=100, max_ms=5_000, factor=2.0, jitter=0.5)
SETTLING: Final = Backoff(first_ms=50, max_ms=1_000, factor=2.0, jitter=0.5)
